# SPDX-License-Identifier: Apache-2.0
"""all_reduce of four ranks on one host: smddp, gloo, and Open MPI's own; and between hosts whose
network is slow: smddp, gloo, and what the bytes allow."""

from __future__ import annotations

import dataclasses

from benchmark import Result, run_ranks
from wire import BYTES_PER_SECOND, RATE_MBIT, Layout, measure, run_job

LIMIT = 1 / 3
GOAL = "all_reduce of 1-64 MiB, 4 ranks on one host: at most a third of gloo's time, each size"
OPEN_MPI = "the same: at most the time of Open MPI's over shared memory, each size"
BETWEEN_HOSTS = (
    f"all_reduce between hosts at {RATE_MBIT} Mbit/s, 1-4 MiB: gloo's time over ours at least 0.95 "
    "of what the bytes allow, each size"
)
WIRE = f"all_reduce between hosts at {RATE_MBIT} Mbit/s, 4 MiB: 90 % of the wire's speed"
STEP = f"a step of DDP with ResNet-18, 2 hosts x 2 at {RATE_MBIT} Mbit/s: not slower than gloo"
LAYOUTS = (Layout(2, 2), Layout(2, 4), Layout(3, 2), Layout(4, 2))
RANKS = 4
SIZES = [2**20, 4 * 2**20, 16 * 2**20, 64 * 2**20]


def mib(size: int) -> str:
    return f"{size >> 20}MiB"


def one_host() -> list[Result]:
    """Two a size: a size that is slow must not hide behind the others."""
    found = run_ranks(RANKS, "collective_job.py", "allreduce", *SIZES)
    rows: list[tuple[str, ...]] = [
        ("MiB", "smddp ms", "gloo ms", "Open MPI ms", "gloo/smddp", "smddp GB/s (bus)")
    ]
    results = []
    for size in SIZES:
        ours, gloo, mpi = (found[str(size)][who] for who in ("smddp", "gloo", "mpi"))
        bus = 2 * (RANKS - 1) / RANKS * size / ours / 1e9
        milliseconds = (f"{1e3 * one:.2f}" for one in (ours, gloo, mpi))
        rows.append((f"{size >> 20}", *milliseconds, f"{gloo / ours:.2f}", f"{bus:.2f}"))
        results.append(Result(f"allreduce-{mib(size)}", ours, gloo, LIMIT, GOAL))
        results.append(Result(f"allreduce-mpi-{mib(size)}", ours, mpi, 1.0, OPEN_MPI))
    return with_table(results, rows)


def with_table(results: list[Result], rows: list[tuple[str, ...]]) -> list[Result]:
    """The table stands above them, once."""
    return [dataclasses.replace(results[0], rows=rows), *results[1:]]


def between_hosts(layout: Layout) -> list[Result]:
    found = measure(layout, "all_reduce", 2**20, 2**22)
    rows: list[tuple[str, ...]] = [
        (layout.text, "smddp ms", "gloo ms", "wire ms", "gloo/smddp", "bytes allow")
    ]
    name = f"allreduce-{layout.hosts}x{layout.ranks_each}"
    allowed = 1 / (0.95 * layout.byte_limit)
    results = []
    for size, times in found.items():
        ours, gloo = times["smddp"], times["gloo"]
        wire = 2 * layout.share_between_hosts * size / BYTES_PER_SECOND
        milliseconds = (f"{1e3 * one:.1f}" for one in (ours, gloo, wire))
        ratio, limit = f"{gloo / ours:.2f}", f"{layout.byte_limit:.2f}"
        rows.append((f"{size >> 20} MiB", *milliseconds, ratio, limit))
        results.append(Result(f"{name}-{mib(size)}", ours, gloo, allowed, BETWEEN_HOSTS))
    largest = max(found)
    wire = 2 * layout.share_between_hosts * largest / BYTES_PER_SECOND
    results.append(Result(f"{name}-wire", found[largest]["smddp"], wire, 1 / 0.9, WIRE))
    return with_table(results, rows)


def step() -> Result:
    layout = LAYOUTS[0]
    found = run_job(layout, "step_job.py", "ddp")
    cells = (f"{1e3 * found[who]:.0f}" for who in ("smddp", "gloo"))
    rows = [(layout.text, "smddp ms", "gloo ms"), ("DDP step, ResNet-18", *cells)]
    return Result("ddp-step-2x2", found["smddp"], found["gloo"], 1.0, STEP, rows)


def run() -> list[Result]:
    results = one_host()
    for layout in LAYOUTS:
        results += between_hosts(layout)
    return [*results, step()]
