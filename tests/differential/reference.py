# SPDX-License-Identifier: Apache-2.0
"""The reference launcher in a private environment below build/, made once from PyPI."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "differential" / "reference"  # not where `train` is looked for
REQUIREMENTS = Path(__file__).with_name("reference.txt")


class NoReference(Exception):
    """It cannot be installed here; the text says why."""


@cache
def reference_python() -> Path:
    """The interpreter that has the reference installed. The first call takes about a minute."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    python = FOLDER / "bin" / "python3"
    stamp = FOLDER / "requirements.sha256"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test session may be making it
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        shutil.rmtree(FOLDER, ignore_errors=True)
        call([sys.executable, "-m", "venv", FOLDER])
        call([python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", REQUIREMENTS])
        stamp.write_text(wanted)
    return python


def call(command: list[object]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise NoReference(f"the reference launcher cannot be installed from PyPI: {last}")
