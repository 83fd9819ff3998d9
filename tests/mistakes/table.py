# SPDX-License-Identifier: Apache-2.0
"""docs/mistakes.md: what is said of each mistake, and after how long."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tests.launcher.jobs import ROOT
from tests.mistakes.case import MISTAKES, Mistake

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
is named, and this page is what it saw. *Said* is quoted; `…` stands for names and numbers. An error
is the job's `failure`, of the rank that made the mistake; a warning is in the log. *After* counts
from the mistake to the end of the job, at most, all processes included.

"""
BANDS = (3, 5, 10, 15)  # [s] so that a slower day changes no page


def mistakes_of(topic: str) -> list[Mistake]:
    module = import_module(f"tests.mistakes.cases.{topic}")
    return [one for one in MISTAKES.values() if one.script.__module__ == module.__name__]


def all_mistakes() -> list[Mistake]:
    return [one for topic in TOPICS for one in mistakes_of(topic)]


def page(seconds: Mapping[str, float]) -> str:
    """``seconds``: the longest time of each mistake that ends a job, by its name."""
    text = HEAD
    for topic, title in TOPICS.items():
        text += f"## {title}\n\n| mistake | with | said | after |\n|---|---|---|---|\n"
        text += "".join(row for one in mistakes_of(topic) for row in rows(one, seconds))
        text += "\n"
    return text.rstrip() + "\n"


def rows(mistake: Mistake, seconds: Mapping[str, float]) -> list[str]:
    by_outcome: dict[tuple[str, str], list[str]] = {}
    for setting, outcome in mistake.tried:
        by_outcome.setdefault((outcome.kind, outcome.says), []).append(setting.name)
    lines = []
    for (kind, says), settings in by_outcome.items():
        said = {"works": "nothing: it works", "warning": f"warning: `{says}`"}.get(
            kind, f"`{says}`"
        )
        after = band(seconds[mistake.name]) if kind == "error" else "–"
        after = "second step" if kind == "warning" else after
        lines.append(f"| {mistake.title} | {', '.join(settings)} | {said} | {after} |\n")
    return lines


def band(seconds: float) -> str:
    return next((f"{limit} s" for limit in BANDS if seconds <= limit), f"{seconds:.0f} s")
