# SPDX-License-Identifier: Apache-2.0
"""Jobs take from each other what is there: those of long tests are imported by no other test."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.documents.named_tests import ROOT

JOBS = ROOT / "tests" / "mpi" / "jobs"


def imports(path: Path) -> list[tuple[str, str]]:
    """Module and name of each import of a name from another job."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and (JOBS / f"{node.module}.py").exists()
        for alias in node.names
    ]


def names(path: Path) -> set[str]:
    """Names that the module binds outside functions and classes."""
    found = set()
    for statement in ast.parse(path.read_text()).body:
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                found.add(statement.name)
            case ast.Import() | ast.ImportFrom():
                found |= {
                    (alias.asname or alias.name).partition(".")[0] for alias in statement.names
                }
            case _:
                found |= {
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                }
    return found


def test_each_name_that_a_job_takes_from_another_is_there() -> None:
    missing = [
        f"{path.name}: {name} from {module}"
        for path in sorted(JOBS.glob("*.py"))
        for module, name in imports(path)
        if name not in names(JOBS / f"{module}.py")
    ]

    assert missing == []
