# SPDX-License-Identifier: Apache-2.0
"""The reference launcher in a private environment below build/, made once from PyPI."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

from pairs import uv  # noqa: E402  # the folder above first

FOLDER = ROOT / "build" / "differential" / "reference"  # not where `train` is looked for
REQUIREMENTS = Path(__file__).with_name("reference.txt")


class NoReference(Exception):
    """The reference cannot be installed here; the text says why."""


@cache
def reference_python() -> Path:
    """The interpreter that has the reference installed."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    python = FOLDER / "bin" / "python3"
    stamp = FOLDER / "requirements.sha256"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test session may be making it
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            uv("venv", "--quiet", "--seed", "--python", sys.executable, FOLDER)
            uv("pip", "install", "--quiet", "--no-deps", "--python", python, "-r", REQUIREMENTS)
        except SystemExit as failed:
            raise NoReference(f"the reference launcher cannot be installed: {failed}") from None
        stamp.write_text(wanted)
    return python
