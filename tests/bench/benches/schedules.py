# SPDX-License-Identifier: Apache-2.0
"""smddp's collectives between 2 to 128 hosts of 8 ranks, simulated: a discrete-event model of the
hosts' networks over the plans that ranks run (tests/bench/programs/simulate_schedules.cc). What
hosts compute and copy takes no time in it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from benchmark import Result, test_program

GBIT, LATENCY_US = 100, 12.5
#: Of each message, at either end: none, and what libfabric takes on TCP at its best.
MESSAGE_US = (0, 1)
LIMIT, LEAST_BYTES, SMALL = 1.15, 64 << 20, 8
GOAL = (
    f"between 128 hosts x 8 at {GBIT} Gbit/s and {LATENCY_US} us: all-reduce and all-gather of 64 "
    f"MiB and more within {LIMIT:g} of what their bytes allow, 8 bytes in as many steps as the "
    "logarithm of the number of hosts"
)

Row = dict[str, Any]


def run() -> list[Result]:
    program = test_program("simulate_schedules")
    results = []
    for message_us in MESSAGE_US:
        done = subprocess.run(
            [program, str(GBIT), str(LATENCY_US), str(message_us)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        results += judged([json.loads(line) for line in done.stdout.splitlines()], message_us)
    return results


def judged(found: list[Row], message_us: float) -> list[Result]:
    hosts = sorted({row["hosts"] for row in found})
    times = {(row["collective"], row["bytes"], row["hosts"]): row for row in found}
    kinds = sorted(
        {(row["collective"], row["bytes"]) for row in found}, key=lambda kind: kind[::-1]
    )
    rows = [(f"ms (over the bound), {message_us:g} us a message", *(f"{n} hosts" for n in hosts))]
    for collective, size in kinds:
        cells = []
        for number in hosts:
            row = times[collective, size, number]
            cells.append(f"{1e3 * row['seconds']:.3f} ({row['seconds'] / row['bound']:.2f})")
        rows.append((f"{collective} of {size:,}", *cells))
    most = hosts[-1]
    results = []
    for collective, size in kinds:
        if size < LEAST_BYTES and size != SMALL:
            continue
        row = times[collective, size, most]
        name = f"schedules-{collective}-{size}-{message_us:g}us"
        limit = 1.0 if size == SMALL else LIMIT
        results.append(Result(name, row["seconds"], row["bound"], limit, GOAL, rows))
        rows = []
    return results
