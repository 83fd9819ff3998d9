# SPDX-License-Identifier: Apache-2.0
"""Folders of the build, and commands that are to succeed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "release"
LIMIT = 600  # [s] for one command; the compiler may share its cores


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def succeed(*words: object, **environment: str) -> str:
    done = command(*words, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
