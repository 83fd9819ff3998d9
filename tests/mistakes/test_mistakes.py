# SPDX-License-Identifier: Apache-2.0
"""Each mistake is told, in time, of the right rank, with a text that one can act on.

SMP_MISTAKE_ROUNDS repeats each job; SMP_MISTAKE_LOAD keeps as many processes busy beside them.
Where all have run, docs/mistakes.md is written anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from tests.ahead import made_ahead
from tests.mistakes import job, table
from tests.mistakes.case import Mistake, Outcome, Setting
from tests.mistakes.job import Seen
from tests.warm.interpreter import warm_python

ROUNDS = int(os.environ.get("SMP_MISTAKE_ROUNDS", "1"))
LOAD = int(os.environ.get("SMP_MISTAKE_LOAD", "0"))
AT_ONCE = 2 * len(os.sched_getaffinity(0))
MOST_SECONDS = 15  # under load, too
Tried = tuple[Mistake, Setting, Outcome]
Jobs = dict[str, Future[list[Seen]]]
TRIED: list[Tried] = [
    (mistake, setting, outcome)
    for mistake in table.all_mistakes()
    for setting, outcome in mistake.tried
]
longest: dict[str, float] = {}  # seconds, by mistake
texts: dict[tuple[str, Outcome], str] = {}
passed: set[str] = set()


def name_of(tried: Tried) -> str:
    return f"{tried[0].name}-{tried[1].name.replace(' ', '_')}"


@pytest.fixture(scope="session", autouse=True)
def load() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def jobs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jobs]:
    """Outcomes of each mistake that is asked for, in all rounds. Many wait for what cannot come."""
    folder = tmp_path_factory.mktemp("mistakes")
    with warm_python(folder / "warm") as python:
        makers = {name_of(tried): partial(all_rounds, tried, folder, python) for tried in TRIED}
        with made_ahead(request, makers, at_once=AT_ONCE) as jobs:
            yield jobs


def all_rounds(tried: Tried, folder: Path, python: Path) -> list[Seen]:
    mistake, setting, _ = tried
    return [job.run(mistake, setting, folder / f"{name_of(tried)}-{turn}", python)
            for turn in range(ROUNDS)]  # fmt: skip


@pytest.mark.parametrize("tried", TRIED, ids=name_of)
def test_it_is_told(tried: Tried, jobs: Jobs) -> None:
    for seen in jobs[name_of(tried)].result():
        check(tried[2], seen)
        name = tried[0].name
        texts.setdefault((name, tried[2]), table.text_of(tried[2], seen))
        if tried[2].kind == "error":
            longest[name] = max(longest.get(name, 0), seen.seconds)
    passed.add(name_of(tried))


def check(outcome: Outcome, seen: Seen) -> None:
    if outcome.kind != "error":
        assert seen.code == 0, seen.failure or seen.log
        assert said(outcome.says, seen.log), seen.log
        return
    assert seen.failure is not None, seen.log
    assert said(outcome.says, seen.failure), seen.failure
    assert outcome.rank in (None, seen.rank), seen.failure
    assert outcome.code in (None, seen.code), seen.failure
    assert seen.seconds < MOST_SECONDS


def said(text: str, where: str) -> bool:
    return re.search(r"[\s\S]*?".join(map(re.escape, text.split("…"))), where) is not None


def test_the_page_is_written() -> None:
    if passed != {name_of(tried) for tried in TRIED}:
        pytest.skip("not all mistakes were tried, or told")
    assert len({tried[0].name for tried in TRIED}) >= 60
    Path(table.PAGE).write_text(table.page(longest, texts))
