#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs complete, hashed locks into the virtual environment whose Python runs this.

Usage: install_locks.py [--torch VERSION] LOCK...

With --torch not the locks' packages are installed, but the newest versions of what their lists (the
.in files beside them) ask for that go with this torch, without hashes.

With uv where pip's configuration says nothing that uv cannot be told, for uv fetches and unpacks
several wheels at once; else, or where uv fails, with pip. The hashes make both install the same.
Downloads go to a folder in the environment, on the same disk, and are not kept.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

VENV = Path(sys.prefix)
LOCKS = Path(__file__).resolve().parent.parent / "docker" / "locks"
SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

# Settings of pip that uv takes as an option, or as a variable, and those that say nothing about
# where packages come from.
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
}
IGNORED = {
    "break-system-packages",
    "cache-dir",
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "no-input",
    "progress-bar",
    "require-virtualenv",
    "root-user-action",
}


def pip_settings(listed: str) -> dict[str, str]:
    """Settings from `pip config list`: `global.cert='FILE'`, `:env:.cert='FILE'`, weakest first."""
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            settings[key] = str(ast.literal_eval(value))
    return settings


def is_missing(place: str) -> bool:
    """A folder that is not there: pip passes it over, uv refuses it."""
    return place.startswith("/") and not Path(place).exists()


def uv_words(settings: dict[str, str]) -> tuple[list[str], dict[str, str]] | None:
    """The same for uv, options and variables; None where it has no word for a setting."""
    options: list[str] = []
    variables = {"SSL_CERT_FILE": SYSTEM_CERTIFICATES}
    for key, value in settings.items():
        if key in OPTIONS:
            items = [item for item in value.split() if not is_missing(item)]
            options += [word for item in items for word in (OPTIONS[key], item)]
        elif key in VARIABLES:
            variables |= dict.fromkeys(VARIABLES[key], value)
        elif key == "no-index":
            options += ["--no-index"] * (value.lower() in ("1", "true", "yes", "on"))
        elif key not in IGNORED:
            return None
    return options, variables


def configured_uv(python: str | Path) -> tuple[list[str], dict[str, str]] | None:
    """uv_words() of what this interpreter's pip is configured for."""
    listed = [python, "-m", "pip", "config", "list"]
    found = subprocess.run(listed, capture_output=True, text=True, check=True)
    return uv_words(pip_settings(found.stdout))


LOCKED = ("--no-deps", "--require-hashes")


def pip(environment: dict[str, str], *options: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--no-cache-dir", "--root-user-action=ignore"]
    subprocess.run([*command, *options], env=environment, check=True)


def uv(environment: dict[str, str], words: tuple[list[str], dict[str, str]], *more: str) -> bool:
    options, variables = words
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--python", sys.executable]
    # As pip does: any index may have the file that a hash names.
    command += ["--no-config", "--index-strategy", "unsafe-best-match"]
    command += ["--compile-bytecode", *options, *more]
    return subprocess.run(command, env=environment | variables, check=False).returncode == 0


def with_torch(version: str, locks: list[str], scratch: Path) -> list[str]:
    """Requirements of the locks' lists, with this torch and what is paired with torch free."""
    lists = [Path(lock).with_suffix(".in").read_text().splitlines() for lock in locks]
    paired = re.compile(r"(torch|torchvision|nvidia-\S*)==")
    others = [line for lines in lists for line in lines if not paired.match(line)]
    wanted = scratch / "wanted.txt"
    wanted.write_text("\n".join([f"torch=={version}", "torchvision", *others]) + "\n")
    return [f"--requirement={wanted}"]


def install(environment: dict[str, str], requirements: list[str], half_done: bool) -> None:
    words = configured_uv(sys.executable)
    pip(environment, *LOCKED, "--requirement", LOCKS / "uv.lock")
    if words is not None:
        if uv(environment, words, *requirements, *["--reinstall"] * half_done):
            return
        half_done = True
    print("installing with pip, which reads all of its configuration", flush=True)
    pip(environment, *requirements, *["--force-reinstall"] * half_done)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--torch")
    parser.add_argument("locks", nargs="*")
    asked = parser.parse_args()
    if asked.help or not asked.locks:
        print(__doc__)
        return 0 if asked.help else 2
    scratch = VENV / "downloads"
    # Another run that was stopped leaves packages that seem installed and lack files.
    half_done = scratch.exists()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch), "UV_CACHE_DIR": str(scratch / "uv")}
    if asked.torch:
        requirements = with_torch(asked.torch, asked.locks, scratch)
    else:
        requirements = [*LOCKED, *(f"--requirement={lock}" for lock in asked.locks)]
    try:
        install(environment, requirements, half_done)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(scratch)
        scratch.mkdir()  # for the next run to see
        return error.returncode
    shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
