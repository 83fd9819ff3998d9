# SPDX-License-Identifier: Apache-2.0
"""The time of an all_reduce of 8 bytes of four ranks: smddp and gloo, on one host and on two."""

from __future__ import annotations

from benchmark import Result, run_ranks
from wire import Layout, measure

LIMIT = 1 / 5
GOAL = "all_reduce of 8 bytes, 4 ranks on one host: at most a fifth of gloo's time"
TWO_HOSTS = "all_reduce of 8 bytes, 2 hosts x 2: not slower than gloo"


def one_host() -> Result:
    sizes = [8, 1024, 16 * 1024]
    found = run_ranks(4, "collective_job.py", "allreduce", *sizes)
    rows: list[tuple[str, ...]] = [("bytes", "smddp us", "gloo us", "Open MPI us")]
    for size in sizes:
        times = (found[str(size)][who] for who in ("smddp", "gloo", "mpi"))
        rows.append((str(size), *(f"{1e6 * one:.1f}" for one in times)))
    return Result("smallmsg", found["8"]["smddp"], found["8"]["gloo"], LIMIT, GOAL, rows)


def two_hosts() -> Result:
    times = measure(Layout(2, 2), "all_reduce", 8, 8)[8]
    cells = (f"{1e6 * times[who]:.1f}" for who in ("smddp", "gloo"))
    rows = [("2 hosts x 2, bytes", "smddp us", "gloo us"), ("8", *cells)]
    return Result("smallmsg-2x2", times["smddp"], times["gloo"], 1.0, TWO_HOSTS, rows)


def run() -> list[Result]:
    return [one_host(), two_hosts()]
