# SPDX-License-Identifier: Apache-2.0
"""A step of four emulated stages whose times scatter, against PyTorch's fixed schedules."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks

STAGES, MICROBATCHES, ROUNDS, SIGMA = 4, 16, 9, 0.3
GOAL = "four emulated stages with lognormal times (sigma 0.3): no step longer than PyTorch's 1F1B"


def run() -> Result:
    times = run_ranks(STAGES, "pipe_job.py", MICROBATCHES, ROUNDS, STAGES, SIGMA)
    rows: list[tuple[str, ...]] = [("seconds a step, emulated", "min", "median", "max")]
    for name, seconds in times.items():
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        rows.append((name, *(f"{figure:.3f}" for figure in figures)))
    # Round by round, for all had the same times in a round.
    ratios = [ours / peer for ours, peer in zip(times["ours"], times["1F1B"], strict=True)]
    rows.append(("ours / 1F1B", *(f"{f(ratios):.3f}" for f in (min, statistics.median, max))))
    return Result("jitter", max(ratios), 1.0, 1.0, GOAL, rows)
