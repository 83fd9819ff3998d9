# SPDX-License-Identifier: Apache-2.0
"""The stubs of the C++ modules say what the modules have, argument by argument.

stubtest compares names and kinds. Arguments it cannot see, but pybind11 writes them into
docstrings.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "smp_runtime" / "python" / "smdistributed"


def test_stubs_are_those_of_the_modules(tmp_path: Path) -> None:
    modules = ("smdistributed._runtime", "smdistributed._smddp")
    allowed = Path(__file__).with_name("stub_allowlist.txt")
    command = [sys.executable, "-m", "mypy.stubtest", *modules, "--concise",
               "--ignore-unused-allowlist", "--allowlist", str(allowed)]  # fmt: skip
    sources = str(PACKAGE.parent)

    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": sources, "MYPY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def functions_of(tree: ast.AST, prefix: str = "") -> dict[str, list[str]]:
    """Arguments by the name of the function, properties left out."""
    found = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            found |= functions_of(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.decorator_list:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found[prefix + node.name] = [one.arg for one in arguments if one.arg != "self"]
    return found


@pytest.mark.parametrize("module", ["_runtime", "_smddp"])
def test_arguments_of_the_stubs_are_those_of_the_functions(module: str) -> None:
    loaded = importlib.import_module(f"smdistributed.{module}")
    stubs = functions_of(ast.parse((PACKAGE / f"{module}.pyi").read_text()))
    wrong, compared = {}, 0
    for name, arguments in stubs.items():
        function: object = loaded
        for part in name.split("."):
            function = getattr(function, part)
        signature = (function.__doc__ or "").split("\n")[0]
        match = re.match(r"\w+\((.*)\) -> ", signature)
        if match is None:
            continue
        told = [one for one in re.findall(r"(?:^|, )(\w+): ", match[1]) if one != "self"]
        compared += 1
        unnamed = [re.fullmatch(r"arg\d+", one) is not None for one in told]
        same = [a or b == c for a, b, c in zip(unnamed, told, arguments, strict=False)]
        if len(told) != len(arguments) or not all(same):
            wrong[name] = (told, arguments)

    assert not wrong
    assert compared > 1


@pytest.mark.parametrize("module", ["_runtime", "_smddp"])
def test_what_the_stubs_have_is_explained_and_the_headers_that_they_name_exist(
    module: str,
) -> None:
    text = (PACKAGE / f"{module}.pyi").read_text()
    parts = [one for one in ast.parse(text).body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    headers = set(re.findall(r"[\w/]+/\w+\.h\b", text))

    assert parts
    assert [one.name for one in parts if not ast.get_docstring(one)] == []
    assert [one for one in headers if not (ROOT / "smp_runtime" / one).is_file()] == []
