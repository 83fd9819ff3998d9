# SPDX-License-Identifier: Apache-2.0
"""The launcher's settings and exit codes are the same in the code, in --help, in the reference."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "train.md").read_text()
SETTING = re.compile(r"SM_LAUNCH_[A-Z_]+[A-Z]")


@pytest.fixture(scope="module")
def train() -> str:
    named = os.environ.get("SMP_TRAIN")
    if not named:
        pytest.skip("SMP_TRAIN names no binary")
    return named


@pytest.fixture(scope="module")
def help_text(train: str) -> str:
    return subprocess.run([train, "--help"], capture_output=True, text=True, check=True).stdout


def section(text: str, heading: str) -> str:
    """From a heading line to the next empty line that ends its block."""
    return text.split(heading + "\n", 1)[1].split("\n\n", 1)[0]


def test_settings_are_the_same_in_the_reference_and_in_help(help_text: str) -> None:
    said = [
        line.split(maxsplit=2)
        for line in section(help_text, "Environment variables, all optional:").splitlines()
    ]
    table = {name: (standard, meaning) for name, standard, meaning in said}
    rows = re.findall(r"^\| `(SMP?_\w+)` \| (\S+) \| (.*) \|$", PAGE, re.MULTILINE)

    assert {name: (standard, meaning) for name, standard, meaning in rows} == table


def test_the_sources_use_no_setting_that_the_table_lacks(help_text: str) -> None:
    known = set(SETTING.findall(section(help_text, "Environment variables, all optional:")))
    used = {
        name
        for folder in ("entrypoint", "opt_ml_layout", "docker", "Dockerfile")
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]
        if path.is_file() and path.suffix not in (".pyc", ".lock")
        for name in SETTING.findall(path.read_text(errors="ignore"))
    }

    assert used <= known
    assert known <= used


def test_exit_codes_are_the_same_in_the_reference_and_in_help(help_text: str) -> None:
    said = re.findall(r"^  (\d+|128\+N) +\S", section(help_text, "Exit status:"), re.MULTILINE)
    table = PAGE.split("## Exit codes", 1)[1].split("\n## ", 1)[0]
    cells = [row.split("|")[2].strip() for row in table.splitlines() if row.startswith("| ")][2:]

    assert said == ["0", "1", "128+N"]
    for code in said:
        assert any(code in cell.replace(" ", "") for cell in cells), code


def test_the_binary_needs_no_python_torch_cuda_or_mpi(train: str) -> None:
    """Nothing of a user's packages can conflict with it (complaint 17)."""
    loaded = subprocess.run(["ldd", train], capture_output=True, text=True, check=True).stdout

    assert "libc.so" in loaded
    assert not re.search(r"python|torch|cuda|libmpi|not found", loaded)
