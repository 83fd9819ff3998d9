# SPDX-License-Identifier: Apache-2.0
"""all_reduce of four ranks on one host: smddp, gloo, and Open MPI's own."""

from __future__ import annotations

import math

from benchmark import Result, run_ranks

LIMIT = 1 / 3
GOAL = (
    "all_reduce of 1-64 MiB, 4 ranks on one host: at most a third of gloo's time (geometric mean)"
)
RANKS = 4
SIZES = [2**20, 4 * 2**20, 16 * 2**20, 64 * 2**20]


def run() -> Result:
    found = run_ranks(RANKS, "collective_job.py", "allreduce", *SIZES)
    rows: list[tuple[str, ...]] = [
        ("MiB", "smddp ms", "gloo ms", "Open MPI ms", "smddp GB/s (bus)")
    ]
    for size in SIZES:
        ours, gloo, mpi = (found[str(size)][who] for who in ("smddp", "gloo", "mpi"))
        bus = 2 * (RANKS - 1) / RANKS * size / ours / 1e9
        rows.append(
            (f"{size >> 20}", *(f"{1e3 * one:.2f}" for one in (ours, gloo, mpi)), f"{bus:.2f}")
        )

    def mean(who: str) -> float:
        return math.exp(sum(math.log(found[str(size)][who]) for size in SIZES) / len(SIZES))

    return Result("allreduce", mean("smddp"), mean("gloo"), LIMIT, GOAL, rows)
