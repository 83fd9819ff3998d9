# SPDX-License-Identifier: Apache-2.0
"""Parts of a machine's configuration that ci/build_secrets.py takes; needs no engine."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

from ci import build_secrets
from tests.image.engine import ROOT


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_later_file_wins_and_variables_win_over_files(tmp_path: Path) -> None:
    indexes = {
        name: f"https://{name}.example/simple"
        for name in ("xdg", "system", "home", "user", "named")
    }

    def conf(name: str, place: str) -> None:
        write(tmp_path / place, f"[global]\nindex-url = {indexes[name]}\nretries = 7\n")

    environment = {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "PIP_CONFIG_FILE": str(tmp_path / "named.conf"),
    }
    system = tmp_path / "etc/pip.conf"
    found = []
    for name, place in (
        ("xdg", "xdg/pip/pip.conf"),
        ("system", "etc/pip.conf"),
        ("home", "home/.pip/pip.conf"),
        ("user", "home/.config/pip/pip.conf"),
        ("named", "named.conf"),
    ):
        conf(name, place)
        found.append(build_secrets.pip_settings(environment, system)["index-url"])
    environment["PIP_INDEX_URL"] = "https://variable.example/simple"
    found.append(build_secrets.pip_settings(environment, system)["index-url"])

    assert found == [*indexes.values(), "https://variable.example/simple"]
    assert build_secrets.pip_settings(environment, system)["retries"] == "7"


def test_only_what_says_where_packages_come_from_is_carried(tmp_path: Path) -> None:
    text = "[global]\ncert = /etc/ca.pem\ntarget = /elsewhere\n[install]\ntrusted-host = a b\n"
    environment = {
        "PIP_CONFIG_FILE": str(write(tmp_path / "pip.conf", text)),
        "PIP_FIND_LINKS": "/opt/wheels file:///opt/wheels https://wheels.example/",
        "PIP_REQUIRE_VIRTUALENV": "1",
    }

    written = configparser.RawConfigParser()
    settings = build_secrets.pip_settings(environment, system=tmp_path / "none")
    written.read_string(build_secrets.pip_conf(settings))

    options = dict(written.items("global"))
    assert not {"cert", "target", "require-virtualenv"} & options.keys()
    assert options["trusted-host"] == "a b"
    # A build sees no folder of this machine.
    assert options["find-links"] == "https://wheels.example/"


def test_links_that_are_all_folders_are_left_out() -> None:
    assert build_secrets.pip_conf({"find-links": "/opt/wheels"}) == "[global]\n"


def test_of_apt_s_configuration_what_fetches_is_carried(tmp_path: Path) -> None:
    write(tmp_path / "10proxy", 'Acquire::http::Proxy "http://proxy.example:3128";\n')
    write(tmp_path / "20disk", 'Dir::Cache "/big";\nDPkg::Post-Invoke { "rm -f /x"; };\n')
    write(tmp_path / "30block", 'Acquire::Queue-Mode\n"access";\nAcquire::Retries "3";\n')

    assert build_secrets.apt_conf(tmp_path) == (
        'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::Retries "3";\n'
    )


def test_the_options_name_each_file_that_is_there(tmp_path: Path) -> None:
    ca = write(tmp_path / "ca.pem", "certificates")
    netrc = write(tmp_path / "home/.netrc", "machine pypi.example login me password secret\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "PIP_CERT": str(ca)}
    (tmp_path / "out").mkdir()

    printed = subprocess.run(
        [sys.executable, ROOT / "ci/build_secrets.py", tmp_path / "out"],
        env=environment | {"PIP_INDEX_URL": "https://token@pypi.example/simple"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert f"--secret=id=ca_bundle,src={ca}" in printed
    assert f"--secret=id=netrc,src={netrc}" in printed
    assert f"--secret=id=pip_conf,src={tmp_path / 'out/pip.conf'}" in printed
    assert f"--secret=id=apt_conf,src={tmp_path / 'out/apt.conf'}" in printed
    assert (
        "index-url = https://token@pypi.example/simple" in (tmp_path / "out/pip.conf").read_text()
    )
    # A command line is seen by everybody on the machine.
    assert not [line for line in printed if "token" in line or "secret@" in line]


def test_what_is_not_there_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    printed = subprocess.run(
        [sys.executable, ROOT / "ci/build_secrets.py", tmp_path / "out"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert "id=netrc" not in printed
