# SPDX-License-Identifier: Apache-2.0
"""A step of four emulated stages whose times scatter, against PyTorch's fixed schedules."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks

STAGES, MICROBATCHES, DRAWS, REPEATS, SIGMA = 4, 16, 7, 5, 0.3
GOAL = (
    f"four emulated stages with lognormal times (sigma {SIGMA:g}): a step no longer than PyTorch's "
    f"1F1B for any of {DRAWS} draws of times, by the medians of {REPEATS} repeats"
)


def run() -> Result:
    rounds = DRAWS * REPEATS
    times = run_ranks(STAGES, "pipe_job.py", MICROBATCHES, rounds, STAGES, SIGMA, DRAWS)
    rows: list[tuple[str, ...]] = [("seconds a step, emulated", "min", "median", "max")]
    for name, seconds in times.items():
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        rows.append((name, *(f"{figure:.3f}" for figure in figures)))
    # Draw by draw, for all had the same times in a round.
    ratios = [
        statistics.median(times["ours"][draw::DRAWS])
        / statistics.median(times["1F1B"][draw::DRAWS])
        for draw in range(DRAWS)
    ]
    rows.append(("ours / 1F1B", *(f"{f(ratios):.3f}" for f in (min, statistics.median, max))))
    return Result("jitter", max(ratios), 1.0, 1.0, GOAL, rows)
