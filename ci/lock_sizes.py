#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Notes beside the locks how much each has to be downloaded.

Usage: lock_sizes.py LOCK

Replaces the line of LOCK in docker/locks/sizes.txt: its name, its SHA-256 and the megabytes of
the files that pip would take here. ci/setup says them before it downloads anything; the sum shows
whether the line still belongs to the lock. Asks the index, fetches metadata only; needs uv and
packaging, which .venv has.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parent.parent
SIZES = ROOT / "docker" / "locks" / "sizes.txt"
HEAD = "# What ci/setup downloads for each lock: name, SHA-256, MB; ci/lock writes it.\n"


def taken_bytes(package: dict[str, Any], ranks: dict[Any, int]) -> int:
    """Size of the wheel that fits best, else of the source."""
    from packaging.utils import parse_wheel_filename  # noqa: PLC0415  # only .venv has it

    fitting = []
    for wheel in package.get("wheels", []):
        tags = parse_wheel_filename(wheel["url"].rsplit("/", 1)[1])[3]
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            fitting.append((rank, int(wheel["size"])))
    return min(fitting)[1] if fitting else int(package["sdist"]["size"])


def download_bytes(lock: Path) -> int:
    from packaging.tags import sys_tags  # noqa: PLC0415  # only .venv has it

    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    with tempfile.TemporaryDirectory() as scratch:
        resolved = Path(scratch) / "pylock.toml"
        command: list[str | Path] = [ROOT / ".venv" / "bin" / "uv", "pip", "compile", "--quiet"]
        command += ["--no-deps", lock]
        command += ["--format", "pylock.toml", "--output-file", resolved]
        command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36"]
        subprocess.run(command, check=True)
        packages = tomllib.loads(resolved.read_text())["packages"]
    return sum(taken_bytes(package, ranks) for package in packages)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__)
        sys.exit(0 if "--help" in sys.argv or "-h" in sys.argv else 2)
    lock = Path(sys.argv[1])
    megabytes = -(-download_bytes(lock) // 1_000_000)
    lines = SIZES.read_text().splitlines(keepends=True)[1:] if SIZES.exists() else []
    others = [line for line in lines if not line.startswith(f"{lock.name} ")]
    line = f"{lock.name} {hashlib.sha256(lock.read_bytes()).hexdigest()} {megabytes}\n"
    SIZES.write_text(HEAD + "".join(sorted([*others, line])))
    count = sum(text[0].isalnum() for text in lock.read_text().splitlines())
    print(f"{lock}: {count} packages, {megabytes} MB to download")


if __name__ == "__main__":
    main()
