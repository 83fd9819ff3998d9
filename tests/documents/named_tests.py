# SPDX-License-Identifier: Apache-2.0
"""Tests that documents name as PATH::NAME."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def exists(test: str) -> bool:
    """PATH::NAME: NAME is a Python function of a file or of any file in a folder, a GoogleTest
    `Suite.Name`, or the name of a golden folder or of a case of the differential test."""
    place, _, name = test.partition("::")
    path = ROOT / place
    if path.is_dir():
        files = sorted(path.glob("*.py"))
        found = any(exists(f"{place}/{file.name}::{name}") for file in files)
        return found or (path / name).is_dir()
    if not path.is_file():
        return False
    text = path.read_text()
    if path.suffix == ".cc":
        suite, _, case = name.partition(".")
        return re.search(rf"\bTEST(_F|_P)?\({suite},\s*{case}\)", text) is not None
    if path.name == "cases.py":
        short = name.removeprefix("mpi_")
        return re.search(rf'(Case|mpi|mpi_with)\(\s*"({name}|{short})"', text) is not None
    return re.search(rf"^def {name}\(", text, re.MULTILINE) is not None
