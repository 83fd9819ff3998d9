# SPDX-License-Identifier: Apache-2.0
"""The time of an all_reduce of 8 bytes of four ranks on one host: smddp and gloo."""

from __future__ import annotations

from benchmark import Result, run_ranks

LIMIT = 1 / 5
GOAL = "all_reduce of 8 bytes, 4 ranks on one host: at most a fifth of gloo's time"


def run() -> Result:
    sizes = [8, 1024, 16 * 1024]
    found = run_ranks(4, "collective_job.py", "allreduce", *sizes)
    rows: list[tuple[str, ...]] = [("bytes", "smddp us", "gloo us", "Open MPI us")]
    for size in sizes:
        times = (found[str(size)][who] for who in ("smddp", "gloo", "mpi"))
        rows.append((str(size), *(f"{1e6 * one:.1f}" for one in times)))
    return Result("smallmsg", found["8"]["smddp"], found["8"]["gloo"], LIMIT, GOAL, rows)
