# SPDX-License-Identifier: Apache-2.0
"""--pairs: of which versions of PyTorch and Python wheels are built and tested. The days on which
all tests of a pair passed are noted in docs/_data/versions.txt."""

from __future__ import annotations

import datetime
import sys
from collections import defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from pairs import ROOT, SMP, Pair, default_pair, pairs_here, unsupported

PAGE = ROOT / "docs" / "_data" / "versions.txt"
outcomes: dict[Pair, set[str]] = defaultdict(set)


def by_age(pair: Pair) -> list[int]:
    return [int(number) for version in pair for number in version.split(".")]


def chosen(which: str) -> list[Pair]:
    if which not in ("all", "ends"):
        return [Pair(*one.split("-")) for one in which.split(",")]
    pairs = sorted(pairs_here(), key=by_age)
    return pairs if which == "all" else [pairs[0], pairs[-1]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pairs", default="ends", help="ends, all, or such as 2.12-3.13,2.15-3.11")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    pairs = chosen(metafunc.config.getoption("--pairs"))
    if "pair" in metafunc.fixturenames:
        names = [f"torch{torch}-python{python}" for torch, python in pairs]
        metafunc.parametrize("pair", pairs, ids=names, scope="module")
    if "ends" in metafunc.fixturenames:
        both = [(pairs[0], pairs[-1]), (pairs[-1], pairs[0])][: len(pairs)]
        metafunc.parametrize("ends", both, ids=["newer", "older"][: len(pairs)], scope="module")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if pair := item.funcargs.get("pair"):
        outcomes[pair].add(report.outcome)
    return report


def table(dates: dict[Pair, str]) -> str:
    """A row for each PyTorch, a column for each Python."""

    def cell(pair: Pair) -> str:
        if pair == default_pair():
            return "all tests"
        return "none" if unsupported(pair) else dates.get(pair, "")

    lines = [["PyTorch", *(f"Python {python}" for python in SMP["python"])]]
    lines += [["---"] * len(lines[0])]
    for torch, whole in SMP["torch"].items():
        lines.append([whole, *(cell(Pair(torch, python)) for python in SMP["python"])])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def noted() -> dict[Pair, str]:
    """The days of the page."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines()[2:]]
    return {
        Pair(torch, python): cell.strip()
        for torch, row in zip(SMP["torch"], rows, strict=True)
        for python, cell in zip(SMP["python"], row[1:], strict=True)
        if cell.strip().startswith("20")
    }


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of the ends alone notes nothing: continuous integration leaves no changes."""
    if session.config.getoption("--pairs") == "ends":
        return
    today = datetime.date.today().isoformat()
    passed = {
        pair: today
        for pair, results in outcomes.items()
        if "passed" in results and "failed" not in results
    }
    if passed:
        PAGE.write_text(table((noted() if PAGE.exists() else {}) | passed))
