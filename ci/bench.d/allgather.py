# SPDX-License-Identifier: Apache-2.0
"""all_gather and reduce_scatter of four ranks on one host: smddp and gloo."""

from __future__ import annotations

import math

from benchmark import Result, run_ranks

LIMIT = 1 / 2
GOAL = "all_gather and reduce_scatter of 1-64 MiB, 4 ranks on one host: at most half of gloo's time"
RANKS = 4
SIZES = [2**20, 16 * 2**20, 64 * 2**20]


def run() -> Result:
    rows: list[tuple[str, ...]] = [("operation", "MiB in all", "smddp ms", "gloo ms")]
    ratios = []
    for operation in ("allgather", "reducescatter"):
        found = run_ranks(RANKS, "collective_job.py", operation, *SIZES)
        for size in SIZES:
            ours, gloo = found[str(size)]["smddp"], found[str(size)]["gloo"]
            rows.append((operation, f"{size >> 20}", f"{1e3 * ours:.2f}", f"{1e3 * gloo:.2f}"))
            ratios.append(ours / gloo)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Result("allgather", mean, 1.0, LIMIT, GOAL, rows)
