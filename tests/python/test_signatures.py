# SPDX-License-Identifier: Apache-2.0
"""What type checkers and editors read of the C++ modules is what the bindings say."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pybind11_stubgen")
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "smp_runtime" / "python" / "smdistributed"
MODULES = ("_runtime.pyi", "_smddp.pyi")


def test_signatures_are_those_of_the_bindings(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "ci" / "signatures", tmp_path], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for name in MODULES:
        same = (PACKAGE / name).read_text() == (tmp_path / name).read_text()
        assert same, f"{name} is not that of the bindings: run ci/signatures"


@pytest.mark.parametrize("name", MODULES)
def test_what_is_bound_is_explained_and_the_headers_named_there_exist(name: str) -> None:
    text = (PACKAGE / name).read_text()
    parts = [one for one in ast.parse(text).body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    headers = set(re.findall(r"[\w/]+/\w+\.h\b", text))

    assert parts
    assert [one.name for one in parts if not ast.get_docstring(one)] == []
    assert [one for one in headers if not (ROOT / "smp_runtime" / one).is_file()] == []
