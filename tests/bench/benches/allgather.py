# SPDX-License-Identifier: Apache-2.0
"""all_gather and reduce_scatter of four ranks on one host: smddp and gloo; between hosts whose
network is slow, beside what the wire takes; and a step of FSDP2 there."""

from __future__ import annotations

import math

from benchmark import Result, run_ranks
from wire import BYTES_PER_SECOND, RATE_MBIT, Layout, measure, run_job

LIMIT = 1 / 2
GOAL = "all_gather and reduce_scatter of 1-64 MiB, 4 ranks on one host: at most half of gloo's time"
WIRE = f"all_gather and reduce_scatter of 4 MiB at {RATE_MBIT} Mbit/s: 90 % of the wire's speed"
STEP_LIMIT = 1 / 1.3
STEP = f"a step of FSDP2, 2 hosts x 2 at {RATE_MBIT} Mbit/s: gloo's time over ours at least 1.3"
LAYOUT = Layout(2, 2)
RANKS = 4
SIZES = [2**20, 16 * 2**20, 64 * 2**20]


def one_host() -> Result:
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


def between_hosts(operation: str) -> Result:
    size = 2**22
    times = measure(LAYOUT, operation, size, size)[size]
    wire = LAYOUT.share_between_hosts * size / BYTES_PER_SECOND
    cells = (f"{1e3 * one:.1f}" for one in (times["smddp"], times["gloo"], wire))
    rows = [(LAYOUT.text, "smddp ms", "gloo ms", "wire ms"), (operation, *cells)]
    return Result(f"{operation}-2x2-wire", times["smddp"], wire, 1 / 0.9, WIRE, rows)


def step() -> Result:
    """C3: the script does not know what it runs on."""
    found = run_job(LAYOUT, "step_job.py", "fsdp2")
    cells = (f"{1e3 * found[who]:.1f}" for who in ("smddp", "gloo"))
    rows = [(LAYOUT.text, "smddp ms", "gloo ms"), ("FSDP2 step", *cells)]
    return Result("fsdp2-step-2x2", found["smddp"], found["gloo"], STEP_LIMIT, STEP, rows)


def run() -> list[Result]:
    return [one_host(), between_hosts("all_gather"), between_hosts("reduce_scatter"), step()]
