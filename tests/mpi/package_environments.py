# SPDX-License-Identifier: Apache-2.0
"""Python environments with packages of PyPI that ours has not, or has in another version."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
_LIMIT_SECONDS = 600


def environment_with(*packages: str) -> Path:
    """An interpreter that has ``packages``, such as ``transformers==4.57.6``, before all of ours.

    Made in build/ by the first test that asks for it. Skips the test if PyPI cannot be reached.
    """
    folder = BUILD / ("with-" + "-".join(one.replace("==", "-") for one in packages))
    stamp, python = folder / "complete", folder / "bin" / "python"
    if not stamp.exists():
        _run("-m", "venv", "--clear", str(folder))
        purelib = sysconfig.get_paths(vars={"base": str(folder)})["purelib"]
        (Path(purelib) / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        _run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages,
             python=str(python))  # fmt: skip
        stamp.touch()  # missing if pip was stopped
    return python


def _run(*words: str, python: str = sys.executable) -> None:
    done = subprocess.run(
        [python, *words], capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        pytest.skip(f"python {' '.join(words)} failed: {last}")
