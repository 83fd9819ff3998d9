# SPDX-License-Identifier: Apache-2.0
"""A step of replicas with our averaging of gradients and with PyTorch's DDP."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks

LIMIT = 1.0
ROUNDS = 15
GOAL = "a step of 48 MiB of gradients behind a slow backward, 2 ranks: no longer than with DDP"


def run() -> Result:
    times = run_ranks(2, "reducer_job.py", ROUNDS)
    rows: list[tuple[str, ...]] = [("seconds a step, emulated", "min", "median", "max")]
    for name, seconds in times.items():
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        rows.append((name, *(f"{figure:.3f}" for figure in figures)))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return Result("reducer", medians["ours"], medians["DDP"], LIMIT, GOAL, rows)
