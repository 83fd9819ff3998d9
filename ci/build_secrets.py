#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hands the machine's pip and apt configuration and CA bundle to an image build as secrets.

Usage: build_secrets.py DIR

Writes into DIR what has to be put together, and prints the `docker build` options, one a line.
Settings that name a path of this machine are left out: a build cannot see them.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Settings of pip that say where packages come from and how to get there.
CARRIED = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "trusted-host",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
)


def pip_files(environment: dict[str, str], system: Path) -> Iterator[Path]:
    """pip's configuration files, weakest first, as pip itself orders them."""
    home = Path(environment.get("HOME", "/root"))
    config_home = Path(environment.get("XDG_CONFIG_HOME", home / ".config"))
    for folder in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield system
    yield home / ".pip" / "pip.conf"
    yield config_home / "pip" / "pip.conf"
    if name := environment.get("PIP_CONFIG_FILE"):
        yield Path(name)


def pip_settings(
    environment: dict[str, str], system: Path = Path("/etc/pip.conf")
) -> dict[str, str]:
    """This machine's settings of pip about getting packages; variables win over files."""
    settings: dict[str, str] = {}
    for path in pip_files(environment, system):
        parser = configparser.RawConfigParser()
        parser.read(path)  # a missing file is no error
        for section in ("global", "install"):
            if parser.has_section(section):
                settings |= dict(parser.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_"):
            settings[name[4:].lower().replace("_", "-")] = value
    return {name: settings[name] for name in CARRIED if name in settings}


def is_address(value: str) -> bool:
    """True if `value` means the same in a build, as a folder of this machine does not."""
    return "://" in value and not value.startswith("file:")


def pip_conf(settings: dict[str, str]) -> str:
    lines = ["[global]"]
    for name, value in settings.items():
        words = value.split()
        if name == "find-links":
            words = [link for link in words if is_address(link)]
        if words:
            lines.append(f"{name} = " + " ".join(words))
    return "\n".join(lines) + "\n"


def first_file(*candidates: str | None) -> str | None:
    return next((name for name in candidates if name and Path(name).is_file()), None)


def apt_conf(folder: Path = Path("/etc/apt/apt.conf.d")) -> str:
    """Proxies, time limits and such of the machine; what steers its own disk stays out."""
    text = []
    for path in sorted(folder.glob("*")):
        try:
            content = path.read_text()
        except OSError:
            continue  # credentials that this user may not read
        lines = [line for line in content.splitlines() if line.startswith("Acquire::")]
        text += [line for line in lines if line.rstrip().endswith(";")]
    return "\n".join(text) + "\n"


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__)
        sys.exit(0 if "--help" in sys.argv or "-h" in sys.argv else 2)
    folder = Path(sys.argv[1])
    environment = dict(os.environ)
    (folder / "pip.conf").write_text(pip_conf(pip_settings(environment)))
    (folder / "apt.conf").write_text(apt_conf())
    sources: dict[str, str | None] = {
        "pip_conf": str(folder / "pip.conf"),
        "apt_conf": str(folder / "apt.conf"),
        "apt_sources": first_file("/etc/apt/sources.list.d/debian.sources"),
        "ca_bundle": first_file(
            environment.get("PIP_CERT"),
            environment.get("SSL_CERT_FILE"),
            "/etc/ssl/certs/ca-certificates.crt",
        ),
        "netrc": first_file(environment.get("NETRC"), f"{environment.get('HOME', '')}/.netrc"),
    }
    for name, source in sources.items():
        if source:
            print(f"--secret=id={name},src={source}")


if __name__ == "__main__":
    main()
