# SPDX-License-Identifier: Apache-2.0
"""Each complaint about the reference launcher (section 14 of its specification) has a test of ours,
or a line in the README that says why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
COMPLAINTS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("complaints.toml").read_text()
)["complaint"]
ROWS = 42


def test_every_row_is_there_once() -> None:
    assert [complaint["row"] for complaint in COMPLAINTS] == list(range(1, ROWS + 1))


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda complaint: str(complaint["row"]))
def test_it_has_tests_or_a_line_in_the_readme(complaint: dict[str, Any]) -> None:
    assert complaint.get("tests") or complaint.get("readme"), complaint["what"]
    for test in complaint.get("tests", []):
        assert exists(test), f"{test}: no such test"
    if "readme" in complaint:
        readme = " ".join((ROOT / "README.md").read_text().split())
        assert complaint["readme"] in readme


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
