# SPDX-License-Identifier: Apache-2.0
"""Names of the library in benchmarks and GPU stages are there: no other test runs most of them."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOBS = ("tests/bench/jobs", "tests/gpu/lab/stages")
SCRIPTS = sorted(script for folder in JOBS for script in (ROOT / folder).rglob("*.py"))


def imported(tree: ast.Module) -> dict[str, Any]:
    """Imports of a script from the library, by their names there. Each import is one that works."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("smdistributed"):
                    module = importlib.import_module(alias.name)
                    if alias.asname:
                        names[alias.asname] = module
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("smdistributed"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def chain_of(node: ast.expr) -> list[str]:
    """``a.b.c``: its names; of other expressions none."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := chain_of(node.value)):
        return [*before, node.attr]
    return []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_library_exist(script: Path) -> None:
    tree = ast.parse(script.read_text())
    names = imported(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        first, *rest = chain_of(node) or [""]
        found = names.get(first)
        for name in rest if found is not None else []:
            if not (inspect.ismodule(found) or inspect.isclass(found)):
                break  # an object, known when the script runs
            assert hasattr(found, name), f"{script.name}:{node.lineno}: {ast.unparse(node)}"
            found = getattr(found, name)
