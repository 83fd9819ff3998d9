# SPDX-License-Identifier: Apache-2.0
"""The variables of the reference are those of the programs' tables, with their defaults."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.documents.named_tests import ROOT

PAGE = (ROOT / "docs" / "reference" / "environment.md").read_text()
SESSION = ROOT / "smp_runtime" / "cluster"
OPTIONS = ROOT / "smp_runtime" / "smddp" / "backend" / "smddp_options.h"
# Reads and settings of variables in scripts, tests and compose files, unlike CMake's and macros.
IN_USE = re.compile(
    r"""environ(?:\.get)?[(\[]["'](SMP_\w+)|getenv\("(SMP_\w+)|(?<!\$)\$\{(SMP_\w+):"""
    r"""|["'](SMP_\w+)["']:\ |"\$(SMP_\w+)"|f"(SMP_\w+)=""",
    re.VERBOSE,
)
OPTION_OF_CMAKE = re.compile(r"(?:set|option|find_program|find_library)\((SMP_\w+)")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(heading: str) -> dict[str, str]:
    """Names and defaults of a table with three columns; `-` stands for none."""
    found = re.findall(r"^\| `(\w+)` \| (\S+) \| .+ \|$", section(heading), re.MULTILINE)
    return {name: "" if default == "-" else default for name, default in found}


def table(file: Path) -> dict[str, str]:
    """Names and defaults of a table in C++: there may be no package and no torch."""
    found = re.findall(r'VariableRow\{\s*"(\w+)",\s*"(\w*)"', file.read_text())
    assert len(found) > 5
    return dict(found)


def test_the_librarys_variables_are_those_of_its_table() -> None:
    assert rows("Variables of the library") == table(SESSION / "runtime_options.h")


def test_smddps_variables_are_those_of_its_table() -> None:
    assert rows("Variables of smddp") == table(OPTIONS)


def known_names() -> set[str]:
    """With the library's prefix: those of its table, and those that others read."""
    others = re.findall(r'"(SMP_\w+)"', (SESSION / "runtime_options.cc").read_text())
    return {*others, *table(SESSION / "runtime_options.h")}


def test_scripts_use_no_variable_that_the_library_takes_for_a_misspelling() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "ci", "docker", "tests", ".ci"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    known = known_names()
    options = {
        name
        for path in [*ROOT.glob("CMakeLists.txt"), *(ROOT / "smp_runtime").rglob("*.cmake")]
        for name in OPTION_OF_CMAKE.findall(path.read_text())
    }
    used = {
        name
        for path in listed
        if (ROOT / path).is_file() and not path.endswith(("CMakeLists.txt", ".lock"))
        for names in IN_USE.findall((ROOT / path).read_text(errors="ignore"))
        for name in names
        if name and name not in options
    }

    assert {"SMP_TRAIN", "SMP_TREE", "SMP_ENGINE_ROOT", "SMP_RECORDER", "SMP_FUZZ_ROUNDS"} <= used
    assert used - known <= {"SMP_WINTER", "SMP_PROGRES"}  # in tests of the warning
    rows_of_table = table(SESSION / "runtime_options.h").keys()
    assert known - rows_of_table - used <= {"SMP_EXTRA_CA_FILE", "SMP_LAUNCH_FOLDER"}


def test_every_known_name_is_in_the_reference() -> None:
    known = known_names()
    # Set by the launcher for its own children.
    missing = [name for name in known - {"SMP_LAUNCH_FOLDER"} if f"`{name}`" not in PAGE]

    assert not missing


def test_the_page_says_how_long_ranks_wait_and_when_to_change_it() -> None:
    symptoms = (ROOT / "docs" / "troubleshooting.md").read_text()
    waits = section("Variables of the library").split("### How long ranks wait\n", 1)[1]

    for text in (waits, symptoms):
        assert re.search(r"`SMP_TIMEOUT_SECONDS`,?\s(?:which\s)?is\s1800", text)
    assert "Raise it if" in waits
    assert "Lower it" in waits
