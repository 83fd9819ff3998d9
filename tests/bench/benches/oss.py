# SPDX-License-Identifier: Apache-2.0
"""The optimizer's state sharded over four ranks: how even its parts are, and what a step takes,
beside PyTorch's ZeroRedundancyOptimizer."""

from __future__ import annotations

from benchmark import Result, middle, run_ranks, spread

RANKS = 4
GOAL = "sharded optimizer state of 4 ranks: the largest part at most 1.001 times the mean"
TIME = "a training step with it: no longer than with PyTorch's DDP and ZeroRedundancyOptimizer"


def run() -> list[Result]:
    found = run_ranks(RANKS, "oss_job.py")
    rows: list[tuple[str, ...]] = [
        ("4 ranks on one host", "MB of state, most", "mean", "ms a step (min-max)")
    ]
    median = {}
    for who, one in found.items():
        times, held = one["seconds"], one["bytes"]
        median[who] = middle(times)
        rows.append(
            (who, f"{max(held) / 1e6:.3f}", f"{sum(held) / RANKS / 1e6:.3f}", spread(times, 1))
        )
    held = found["ours"]["bytes"]
    return [
        Result("oss", max(held), sum(held) / RANKS, 1.001, GOAL, rows),
        Result("oss-step", median["ours"], median["ZeroRedundancyOptimizer"], 1.0, TIME),
    ]
