# SPDX-License-Identifier: Apache-2.0
"""What every file in ci/bench.d is made of.

A benchmark is a module with `GOAL`, one sentence, and `run() -> Result` (or a list of them), which
measures us and a peer alternately in one run, so that a busy machine slows both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """`ratio` is ours/peer in the unit that the bench names; it passes up to `limit`."""

    bench: str
    ours: float
    peer: float
    limit: float
    goal: str
    rows: list[tuple[str, ...]] = field(default_factory=list)  # the table, headings first

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def passed(self) -> bool:
        return self.ratio <= self.limit

    def table(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = []
        for row in self.rows:
            cells = [
                cell.ljust(width) if number == 0 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def json_line(self) -> str:
        return json.dumps(
            {
                "bench": self.bench,
                "ours": round(self.ours, 6),
                "peer": round(self.peer, 6),
                "ratio": round(self.ratio, 4),
                "limit": self.limit,
                "goal": self.goal,
                "pass": self.passed,
            }
        )
