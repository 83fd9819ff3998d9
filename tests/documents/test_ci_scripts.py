# SPDX-License-Identifier: Apache-2.0
"""The scripts of ci/ start from anywhere, answer on stdout alone, and refuse before they change
anything, with one sentence, what cannot work on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.documents.machine import FAKE_ENGINE, UBUNTU, Machine, in_namespace, read_only
from tests.documents.named_tests import ROOT

SCRIPTS = sorted(
    path.name
    for path in (ROOT / "ci").iterdir()
    if path.is_file() and os.access(path, os.X_OK) and path.suffix in ("", ".sh")
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def engine_answers() -> bool:
    """Docker's usual place cannot be moved: where an engine answers there, none is started."""
    found = subprocess.run(
        ["docker", "--host", "unix:///var/run/docker.sock", "version"],
        capture_output=True,
        check=False,
    )
    return found.returncode == 0


without_engine = pytest.mark.skipif(
    shutil.which("docker") is not None and engine_answers(),
    reason="a Docker engine runs on this machine, and the scripts would use it",
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_answers_help_from_another_folder(script: str) -> None:
    ended = subprocess.run(
        [ROOT / "ci" / script, "--help"], cwd="/", capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert script.split(".", maxsplit=1)[0] in ended.stdout or "usage" in ended.stdout.lower()
    assert ended.stderr == ""


REFUSING = [
    ("ci/setup",),
    ("ci/setup", "--tests", "--images"),
    ("ci/quickstart",),
    ("ci/build",),
    ("ci/test",),
    ("ci/test", "--all"),
    ("ci/docs",),
    ("ci/docs", "--picture"),
    ("ci/peers",),
    ("ci/fuzz", "1"),
    pytest.param(("ci/engine", "start"), marks=without_engine),
    pytest.param(("ci/image",), marks=without_engine),
    pytest.param(("ci/vendor",), marks=without_engine),
]


@pytest.mark.parametrize("words", REFUSING, ids=" ".join)
def test_another_distribution_is_refused(machine: Machine, words: tuple[str, ...]) -> None:
    (machine.folder / "os-release").write_text(UBUNTU)
    if words == ("ci/vendor",):  # ci/image, which it calls, says so
        words_of_refusal = machine.run(*words).stderr
    else:
        words_of_refusal = machine.refuses(*words)

    assert "ubuntu 24.04, not Debian 12" in words_of_refusal
    assert "do it in a container" in words_of_refusal


def test_another_release_of_debian_is_refused(machine: Machine) -> None:
    (machine.folder / "os-release").write_text('ID=debian\nVERSION_ID="11"\n')

    assert "debian 11, not Debian 12 or 13" in machine.refuses("ci/setup")


PROCESSOR = ["ci/setup", "ci/quickstart", "ci/build", "ci/test", "ci/docs", "ci/image"]


@pytest.mark.parametrize("script", PROCESSOR)
def test_another_processor_is_refused(machine: Machine, script: str) -> None:
    machine.program("uname", "echo aarch64")

    assert "this machine is aarch64" in machine.refuses(script)


PACKAGES = ["ci/setup", "ci/docs"]


@pytest.mark.parametrize("script", PACKAGES)
def test_a_user_who_cannot_become_root_is_refused(machine: Machine, script: str) -> None:
    machine.program("id", 'if [[ $* == --user ]]; then echo 1000; else exec /usr/bin/id "$@"; fi')

    assert "sudo does not let" in machine.refuses(script)


@pytest.mark.parametrize("script", PACKAGES)
def test_a_mirror_that_does_not_answer_is_refused(machine: Machine, script: str) -> None:
    said = machine.refuses(script)

    assert "Debian's mirror cannot be reached (Could not connect to 127.0.0.1:9" in said


def test_a_machine_without_sources_is_refused(machine: Machine) -> None:
    (machine.folder / "sources.list").write_text("")

    assert "apt knows no source of packages" in machine.refuses("ci/setup")


DISK = ["ci/setup", "ci/quickstart", "ci/build", "ci/test", "ci/docs", "ci/peers", "ci/vendor"]


@pytest.mark.parametrize("script", DISK)
def test_a_disk_that_is_too_small_is_refused(machine: Machine, script: str) -> None:
    (machine.programs / "df").unlink()
    prefix = in_namespace(
        "mount -t tmpfs -o size=20m tmpfs /mnt",
        f"cp -r {machine.clone}/* /mnt",
        f"mount --bind /mnt {machine.clone}",
    )

    assert "MB are free in the file system" in machine.refuses(script, prefix=prefix)


@pytest.mark.parametrize("script", [*DISK, "ci/image", "ci/fuzz"])
def test_a_folder_that_cannot_be_written_is_refused(machine: Machine, script: str) -> None:
    said = machine.refuses(script, prefix=read_only(machine.clone))

    folder = "docker/vendor" if script == "ci/vendor" else str(machine.clone)
    assert f"cannot write to {folder}; give that user the folder" in said


@pytest.mark.parametrize("program", ["cmake", "ninja", "g++"])
def test_a_build_without_its_programs_names_ci_setup(machine: Machine, program: str) -> None:
    machine.holds(".venv/locks.sha256")
    others = machine.folder / "others"
    others.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name != program:
            (others / path.name).symlink_to(path)
    machine.environment["PATH"] = f"{machine.programs}:{others}"
    for name in {"cmake", "ninja", "g++"} - {program}:
        machine.program(name, "exit 1")

    assert machine.refuses("ci/build") == (
        f"ci/build: there is no {program}; run ci/setup, which installs it\n"
    )


class Packages(BaseHTTPRequestHandler):
    """A mirror as far as its answer to the first question."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"yes")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Packages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


PIP_WHEELS = list(Path("/usr/share/python-wheels").glob("pip-*.whl"))


@pytest.mark.skipif(not PIP_WHEELS, reason="there is no wheel of pip, as python3.11-venv brings it")
@pytest.mark.parametrize("script", ["ci/setup", "ci/docs", "ci/peers"])
def test_an_index_that_does_not_answer_is_refused(
    machine: Machine, mirror: str, script: str
) -> None:
    machine.mirror(mirror)
    if script != "ci/setup":
        machine.holds(".venv/locks.sha256")
        machine.holds("build/peers/left")

    said = machine.refuses(script)

    assert "index of Python packages cannot be reached (http://127.0.0.1:9/filelock/: " in said
    assert "Connection refused)" in said


@pytest.fixture
def engine(machine: Machine) -> Iterator[Machine]:
    """A machine where an engine runs that has no image."""
    if shutil.which("docker") is None:
        pytest.skip("there is no docker; ci/setup --images installs it")
    machine.program("dockerd", FAKE_ENGINE)
    pid, host = machine.folder / "docker.pid", f"unix://{machine.folder}/docker.sock"
    options = ("--pidfile", str(pid), "--host", host)
    with subprocess.Popen([machine.programs / "dockerd", *options]) as running:
        machine.environment["DOCKER_HOST"] = host
        while not (machine.folder / "docker.sock").exists():
            assert running.poll() is None
        yield machine
        running.kill()


def test_an_image_from_nothing_takes_a_network(engine: Machine, mirror: str) -> None:
    assert "Debian's mirror cannot be reached" in engine.refuses("ci/image")

    engine.mirror(mirror)
    if PIP_WHEELS:
        assert "index of Python packages cannot be reached" in engine.refuses("ci/image")


def test_an_image_takes_a_folder_for_its_documents(engine: Machine) -> None:
    said = engine.refuses("ci/image", prefix=read_only(engine.clone))

    assert f"cannot write to {engine.clone}" in said


@without_engine
def test_installing_docker_leaves_stdout_to_the_engine(machine: Machine, mirror: str) -> None:
    machine.mirror(mirror)
    machine.program("apt-get", '[[ $1 != indextargets ]] || exec /usr/bin/apt-get "$@"\necho Get:1')
    machine.program("dockerd", FAKE_ENGINE)
    if shutil.which("docker") is None:
        machine.program("docker", "exit 0")
    pid = machine.folder / "run" / "docker.pid"

    try:
        ended = machine.run("ci/engine", "start")
        asked = machine.run("ci/engine", "env")
    finally:
        if pid.exists():
            os.kill(int(pid.read_text()), 9)

    expected = f"DOCKER_HOST=unix://{machine.folder}/run/docker.sock\n"
    assert ended.stdout == expected, ended.stderr
    assert "installing 3 Debian packages" in ended.stderr
    assert any(call.startswith("apt-get --quiet --yes") for call in machine.changing_calls())
    assert asked.stdout == expected
    assert asked.stderr == ""


def source(machine: Machine, line: str) -> subprocess.CompletedProcess[str]:
    script = machine.clone / "ci" / "line"
    script.write_text(
        f'#!/bin/bash\nset -euo pipefail\nsource "$(dirname "$0")/machine.sh"\n{line}\n'
    )
    script.chmod(0o755)
    return machine.run("ci/line")


def test_git_reads_a_clone_of_another_user(machine: Machine) -> None:
    subprocess.run(["git", "init", "--quiet", machine.clone], check=True)
    machine.environment["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    listed = 'cd "$(dirname "$0")/.."; git ls-files --others ci/line'

    assert "dubious ownership" in source(machine, listed).stderr
    assert source(machine, listed.replace(";", "; trust_clone;")).stdout == "ci/line\n"


def test_a_quiet_step_says_every_few_seconds_how_far_it_is(machine: Machine) -> None:
    ended = source(machine, "step() { echo half done; sleep 7; }; quietly 'a step' /etc step")

    assert ended.returncode == 0
    assert ended.stdout == ""
    assert ended.stderr.startswith("  a step: 5 s, ")
    assert ended.stderr.endswith(" MB, half done\n")


def test_a_quiet_step_that_fails_shows_what_it_said(machine: Machine) -> None:
    ended = source(machine, "step() { echo the reason; return 7; }; quietly 'a step' '' step")

    assert ended.returncode == 7
    assert ended.stdout == ""
    assert ended.stderr == "a step: failed\nthe reason\n"


def test_a_step_aloud_speaks_on_stderr_and_keeps_its_exit_code(machine: Machine) -> None:
    ended = source(
        machine, "step() { echo one; echo two >&2; printf three; return 7; }; aloud it step"
    )

    assert (ended.returncode, ended.stdout) == (7, "")
    assert ended.stderr == "one\ntwo\nthree\n"


def test_folders_that_share_a_disk_are_added_up(machine: Machine) -> None:
    (machine.programs / "df").unlink()
    free = shutil.disk_usage(machine.folder).free // 1_000_000
    half = free * 2 // 3

    one = source(machine, f"require_space it {machine.folder} {half}")
    two = source(machine, f"require_space it {machine.folder} {half} {machine.folder}/none {half}")

    assert one.returncode == 0, one.stderr
    assert two.returncode == 1
    assert f"it takes {2 * half}" in two.stderr
