# SPDX-License-Identifier: Apache-2.0
"""Our launcher beside the reference on the same trees: whatever differs must be on the reviewed
list, intended.toml, with its reason; and whatever is on the list must be seen to differ."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import tomllib

from tests.ahead import made_ahead
from tests.differential.case import Case
from tests.differential.cases import CASES
from tests.differential.comparison import Difference, differences
from tests.differential.observation import (
    Observation,
    observe_ours,
    observe_reference,
    remove,
)
from tests.differential.reference import NoReference, reference_python
from tests.launcher.jobs import train_binary

INTENDED = Path(__file__).with_name("intended.toml")
seen: Counter[int] = Counter()
ran: set[str] = set()
Observed = dict[str, "Future[tuple[Observation, Observation]]"]  # ours and theirs, by case


@dataclass(frozen=True)
class Intended:
    """A row of intended.toml. `ours` and `theirs` are patterns of the whole value; no pattern
    means anything, "(absent)" that it is not there."""

    names: tuple[str, ...]
    cases: tuple[str, ...]
    reason: str
    ours: str | None = None
    theirs: str | None = None

    def covers(self, case: str, difference: Difference) -> bool:
        return (
            any(fnmatchcase(case, pattern) for pattern in self.cases)
            and any(fnmatchcase(difference.name, pattern) for pattern in self.names)
            and fits(self.ours, difference.ours)
            and fits(self.theirs, difference.theirs)
        )


def fits(pattern: str | None, value: str | None) -> bool:
    if pattern is None:
        return True
    if value is None or pattern == "(absent)":
        return value is None and pattern == "(absent)"
    return re.fullmatch(pattern, value, re.DOTALL) is not None


@cache
def intended() -> tuple[Intended, ...]:
    rows = tomllib.loads(INTENDED.read_text())["difference"]
    return tuple(Intended(tuple(row.pop("name")), tuple(row.pop("case")), **row) for row in rows)


@pytest.fixture(scope="session", autouse=True)
def reference() -> None:
    try:
        reference_python()
    except NoReference as reason:
        pytest.skip(str(reason))


def observe_both(case: Case) -> tuple[Observation, Observation]:
    folder = Path(tempfile.mkdtemp(prefix="smp-differential-"))
    try:
        theirs = observe_reference(case, folder)
        return observe_ours(case, folder, train_binary()), theirs
    finally:
        remove(folder)


@pytest.fixture(scope="session")
def observed(request: pytest.FixtureRequest) -> Iterator[Observed]:
    """Observations of each case that is asked for, as many cases at once as there are CPUs."""
    makers = {case.name: partial(observe_both, case) for case in CASES}
    with made_ahead(request, makers, at_once=len(os.sched_getaffinity(0))) as observed:
        yield observed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_difference_is_intended(case: Case, observed: Observed) -> None:
    ours, theirs = observed[case.name].result()

    ran.add(case.name)
    surprises = []
    for difference in differences(ours, theirs):
        rows = [i for i, row in enumerate(intended()) if row.covers(case.name, difference)]
        seen.update(rows)
        if not rows:
            surprises.append(difference)
    if surprises:
        lines = "\n".join(str(difference) for difference in surprises)
        pytest.fail(f"{len(surprises)} differences that nobody intended:\n{lines}", pytrace=False)


def test_every_intended_difference_is_seen() -> None:
    if ran != {case.name for case in CASES}:
        pytest.skip("not all cases ran")
    unseen: list[Any] = [row for i, row in enumerate(intended()) if seen[i] == 0]

    assert not unseen, "no case shows these any more; take them off the list"
