# SPDX-License-Identifier: Apache-2.0
"""docs/mistakes.md: what is said of each mistake, and after how long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module

from tests.launcher.jobs import ROOT
from tests.mistakes.case import MISTAKES, Mistake, Outcome
from tests.mistakes.job import Seen

PAGE = ROOT / "docs" / "mistakes.md"
TOPICS = {
    "steps": "In and around a step",
    "optimizers": "Optimizers, gradients and loss scales",
    "models": "The model",
    "ranks": "Ranks that differ",
    "checkpoints": "Saving and loading",
    "settings": "Settings and initialisation",
    "jobs": "The rest of the script",
}
HEAD = """\
# Common mistakes, and what is said

Each mistake is a small script that `ci/test mistakes` runs as a job with every way of training that
is named, and this page is what it saw. An error is the text of the job's `failure`; where one rank
fails by itself, it is that rank's, and not that of those that lost it. A warning is in the log.
*After* counts from the mistake to the end of the job, at most, all processes included.

"""
LONGEST = 240  # [characters] of what is said
BANDS = (3, 5, 10, 15)  # [s] so that a slower day changes no page


def mistakes_of(topic: str) -> list[Mistake]:
    module = import_module(f"tests.mistakes.cases.{topic}")
    return [one for one in MISTAKES.values() if one.script.__module__ == module.__name__]


def all_mistakes() -> list[Mistake]:
    return [one for topic in TOPICS for one in mistakes_of(topic)]


def page(seconds: Mapping[str, float], texts: Mapping[tuple[str, Outcome], str]) -> str:
    """``seconds``: the longest time of each mistake that ends a job, by its name; ``texts``: what
    was said, by that and the outcome."""
    text = HEAD
    for topic, title in TOPICS.items():
        text += f"## {title}\n\n| mistake | with | said | after |\n|---|---|---|---|\n"
        text += "".join(row for one in mistakes_of(topic) for row in rows(one, seconds, texts))
        text += "\n"
    return text.rstrip() + "\n"


def rows(
    mistake: Mistake, seconds: Mapping[str, float], texts: Mapping[tuple[str, Outcome], str]
) -> Iterator[str]:
    by_outcome: dict[Outcome, list[str]] = {}
    for setting, outcome in mistake.tried:
        by_outcome.setdefault(outcome, []).append(setting.name)
    for outcome, settings in by_outcome.items():
        said = code_of(texts[mistake.name, outcome])
        after = "–"
        if outcome.kind == "error":
            after = band(seconds[mistake.name])
        elif outcome.kind == "warning":
            said, after = f"warning: {said}", "second step"
        else:
            said = "nothing: it works"
        yield f"| {mistake.title} | {', '.join(settings)} | {said} | {after} |\n"


def text_of(outcome: Outcome, seen: Seen) -> str:
    """The line of what a user saw that says it."""
    if outcome.kind == "error":
        failure = seen.failure or ""
        text = failure.partition('ErrorMessage "')[2].partition('\nCommand "')[0] or failure
    else:
        text = "\n".join(re.split(r"(?:WARNING|Warning:)\s+", seen.log)[1:])
    # A text of torch in many lines has tabs in front of them, code of a traceback has spaces.
    text = text.replace("\n\t", " ")
    lines = [short(line) for line in text.splitlines() if line and not line[0].isspace()]
    telling = (line for line in lines if outcome.says and outcome.says in line)
    line = next(telling, lines[0] if lines else "")
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rstrip()} …"


def short(line: str) -> str:
    """Without what tells where it ran: ranks, modules of exceptions, folders of the test."""
    line = re.sub(r"^(\[1,\d+\]<std\w+>:)?(rank \d+ on [\w.-]+: |\[rank ?\d+\]:? )?", "", line)
    line = re.sub(r'^(ExtraInfo "|rank \d+: )', "", line).strip().rstrip('"')
    line = re.sub(r"\b(?:\w+\.)+(\w+(?:Error|Exception)\b)", r"\1", line)
    return re.sub(r"/\S*?/job\b", "/opt/ml", line).replace(f"{ROOT}/", "")


def code_of(text: str) -> str:
    """As code in a cell of a Markdown table."""
    fence = "``" if "`" in text else "`"
    padding = " " if "`" in text else ""
    return fence + padding + text.replace("|", "\\|") + padding + fence


def band(seconds: float) -> str:
    return next((f"{limit} s" for limit in BANDS if seconds <= limit), f"{seconds:.0f} s")
