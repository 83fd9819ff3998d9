# SPDX-License-Identifier: Apache-2.0
"""The reference in docs/ has what the sources have: names, variables, options, error texts.

That pages build, and that links lead somewhere, is the business of ci/docs.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.documents.named_tests import ROOT

DOCS = ROOT / "docs"
PACKAGE = ROOT / "smp_runtime" / "python" / "smdistributed"
LIBRARY = PACKAGE / "modelparallel" / "torch"
VARIABLE = re.compile(r"\b(?:SM_LAUNCH|SMDDP|SMP)_[A-Z][A-Z_]*[A-Z]\b")
# Names of that form which are no variables of the environment.
NO_VARIABLES = {
    # CMake's, the preprocessor's, and a variable that the launcher sets for its own children
    "SMP_CHECK", "SMP_FIELD", "SMP_FORMATS_ERRORS", "SMP_HAS_CUDA", "SMP_LAUNCH_FOLDER", "SMP_LOG",
    "SMP_IS_LOAD_INFO_KEY", "SMP_IS_PARTIAL_KEY", "SMP_ON_BOTH", "SMP_VERSION",
    "SMP_VERSION_MAJOR", "SMP_VERSION_MINOR", "SMP_VERSION_PATCH",
    "SMP_WITH_CUDA",
}  # fmt: skip
# What a user calls has a docstring; these are documented beside a table or are plain data.
MODULES_WITH_PUBLIC_NAMES = (
    "modelparallel/torch/__init__.py",
    "modelparallel/torch/nn/__init__.py",
    "dataparallel/torch/distributed.py",
    "dataparallel/torch/parallel/__init__.py",
    "dataparallel/torch/torch_smddp.py",
)


@cache
def reference() -> str:
    """All pages of the reference, and what they include from elsewhere."""
    pages = [path.read_text() for path in sorted((DOCS / "reference").rglob("*.md"))]
    return "\n".join(pages)


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", reference()))


def public_names(module: str) -> list[str]:
    """`__all__` of a file, without importing it."""
    for node in ast.parse((PACKAGE / module).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{module} has no __all__")


def classes_of_errors() -> Iterator[str]:
    for module in (LIBRARY / "exceptions.py", PACKAGE / "modelparallel/backend/exceptions.py"):
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.ClassDef):
                yield node.name


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cc", ".h", ".cu") and path.is_file():
                yield path


@pytest.mark.parametrize("module", MODULES_WITH_PUBLIC_NAMES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    missing = [name for name in public_names(module) if name not in words()]

    assert not missing


def test_every_error_of_the_library_has_a_docstring() -> None:
    """The page of errors shows all classes of the two modules."""
    page = (DOCS / "reference" / "python" / "errors.md").read_text()

    assert "automodule:: smdistributed.modelparallel.torch.exceptions" in page
    assert "automodule:: smdistributed.modelparallel.backend.exceptions" in page
    assert len(list(classes_of_errors())) > 10


def test_public_functions_and_classes_have_docstrings() -> None:
    """Covers all that the reference shows by autodoc: functions, classes, listed members."""
    named = re.findall(r"auto(?:function|class):: +([\w.]+)", reference())
    shown = {name.rpartition(".")[2] for name in named}
    trees = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    documented = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
    }
    undocumented, found = [], set()
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                if any(ast.unparse(mark) == "overload" for mark in node.decorator_list):
                    continue
                name, is_documented = node.name, ast.get_docstring(node) is not None
            elif isinstance(node, ast.Assign):  # another name of a function or of a method
                name = ast.unparse(node.targets[0])
                is_documented = ast.unparse(node.value).rpartition(".")[2] in documented
            else:
                continue
            if name in shown:
                found.add(name)
                if not is_documented:
                    undocumented.append(f"{path.name}: {name}")

    assert not undocumented
    assert shown <= found


def test_every_variable_that_the_sources_read_is_in_the_reference() -> None:
    used: dict[str, Path] = {}
    for path in sources("smp_runtime", "entrypoint", "opt_ml_layout"):
        for name in VARIABLE.findall(re.sub(r"//.*", "", path.read_text())):
            used.setdefault(name, path)
    text = reference()
    missing = {
        name: str(path.relative_to(ROOT))
        for name, path in used.items()
        if name not in NO_VARIABLES and not re.search(rf"`{name}\b", text)
    }

    assert not missing


def test_the_reference_names_no_variable_that_nothing_reads() -> None:
    page = (DOCS / "reference" / "environment.md").read_text()
    folders = ("smp_runtime", "entrypoint", "opt_ml_layout", "docker", "ci", "tests")
    known = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc", ".lock", ".so", ".png"):
                known |= set(VARIABLE.findall(path.read_text(errors="ignore")))

    assert set(VARIABLE.findall(page)) <= known


def test_every_option_of_train_is_in_the_reference() -> None:
    """From the sources, so that it is checked without a binary, too."""
    page = (DOCS / "reference" / "train.md").read_text()
    options = {"json", "rank-exec"}
    text = (ROOT / "entrypoint" / "config" / "command_line.cc").read_text()
    for after in text.split("add_options()")[1:]:
        listed = after[: after.index("return result;")]
        options |= set(re.findall(r'\(\s*"([a-z-]+)(?:,[a-z])?",', listed))
    options.remove("folder")  # words without an option, of --report

    assert {"plan", "doctor", "make-tree", "channel", "replace"} <= options
    missing = [option for option in sorted(options) if f"--{option}" not in page]
    assert not missing


def test_every_option_of_the_binary_is_in_the_reference() -> None:
    train = os.environ.get("SMP_TRAIN")
    if not train:
        pytest.skip("SMP_TRAIN names no binary")
    said = subprocess.run([train, "--help"], capture_output=True, text=True, check=True).stdout
    page = (DOCS / "reference" / "train.md").read_text()

    missing = [option for option in set(re.findall(r"--[a-z][a-z-]+", said)) if option not in page]
    assert not missing


# --- Troubleshooting ---


@cache
def texts_of_the_program() -> str:
    """All sources, with the pieces of a string literal put together and blanks made one; also the
    scripts that set up and build."""
    parts = []
    for path in sources("smp_runtime", "entrypoint", "opt_ml_layout"):
        text = path.read_text()
        text = re.sub(r'"\s*\n\s*(?:f|R)?"', "", text)
        parts.append(text.replace('\\"', '"'))
    for path in sorted((ROOT / "ci").iterdir()):
        if path.is_file() and "machine.sh" in (text := path.read_text()):
            parts.append(re.sub(r'" \\\n\s*"', " ", text).replace('\\"', '"'))
    return " ".join(" ".join(parts).split())


def symptoms() -> list[str]:
    """The error texts of our own that the page quotes: code in its lines on what one sees."""
    page = (DOCS / "troubleshooting.md").read_text()
    blocks = re.findall(r"\*\*You see\*\*(.*?)\n\n", page, re.DOTALL)
    return [
        " ".join((one or other).split())
        for block in blocks
        for one, other in re.findall(r"``(.+?)``|`([^`]+)`", block, re.DOTALL)
    ]


def test_there_are_symptoms() -> None:
    assert len(symptoms()) > 50


@pytest.mark.parametrize("symptom", symptoms(), ids=lambda symptom: symptom[:60])
def test_the_program_says_what_the_page_of_symptoms_quotes(symptom: str) -> None:
    said = texts_of_the_program()
    pieces = [piece.strip(' ",;:()') for piece in symptom.split("…")]

    missing = [piece for piece in pieces if len(piece) > 2 and piece not in said]
    assert not missing
