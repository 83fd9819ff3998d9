# SPDX-License-Identifier: Apache-2.0
"""smddp's collectives between 2 to 128 hosts of 8 ranks, simulated: a discrete-event model of the
hosts' networks over the plans that ranks run (tests/bench/programs/simulate_schedules.cc). What
hosts compute and copy takes no time in it. On 2 to 8 hosts that can be had here, namespaces whose
network is slow, the model is held against what is measured."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import Any

from benchmark import Result, test_program
from wire import FRAMING, RATE_MBIT, Layout, measure

GBIT, LATENCY_US = 100, 12.5
#: Of each message, at either end: none, and what libfabric takes on TCP at its best.
MESSAGE_US = (0, 1)
HOSTS, RANKS_EACH = (2, 4, 8, 16, 32, 64, 128), 8
LIMIT, LEAST_BYTES, SMALL = 1.15, 64 << 20, 8
#: Measured beside their simulation. A ping through such an interface takes some 0.1 ms.
MEASURED = (Layout(2, 2), Layout(4, 2), Layout(8, 1))
MEASURED_BYTES, MEASURED_LATENCY_US, CLOSE = 4 << 20, 100, 1.1
GOAL = (
    f"between 128 hosts x 8 at {GBIT} Gbit/s and {LATENCY_US} us: all-reduce and all-gather of 64 "
    f"MiB and more within {LIMIT:g} of what their bytes allow, 8 bytes in as many steps as the "
    "logarithm of the number of hosts"
)
CLOSENESS = (
    f"all-reduce and all-gather of {MEASURED_BYTES >> 20} MiB: measured and simulated within 10 % "
    "of each other"
)

Row = dict[str, Any]


def simulated(
    gbit: float, latency_us: float, message_us: float, ranks_each: int, *hosts: int
) -> list[Row]:
    numbers = (gbit, latency_us, message_us, ranks_each, *hosts)
    done = subprocess.run(
        [test_program("simulate_schedules"), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def run() -> list[Result]:
    results = []
    for message_us in MESSAGE_US:
        found = simulated(GBIT, LATENCY_US, message_us, RANKS_EACH, *HOSTS)
        results += judged(found, message_us)
    return results + beside_measured()


def beside_measured() -> list[Result]:
    rows: list[tuple[str, ...]] = [
        (f"{MEASURED_BYTES >> 20} MiB at {RATE_MBIT} Mbit/s, ms", "measured", "simulated", "ratio")
    ]
    results = []
    for layout in MEASURED:
        model = simulated(
            RATE_MBIT / 1e3 / FRAMING, MEASURED_LATENCY_US, 0, layout.ranks_each, layout.hosts
        )
        for collective in ("all_reduce", "all_gather"):
            times = measure(layout, collective, MEASURED_BYTES, MEASURED_BYTES)
            ours = times[MEASURED_BYTES]["smddp"]
            [wanted] = [
                row["seconds"]
                for row in model
                if (row["collective"], row["bytes"]) == (collective, MEASURED_BYTES)
            ]
            cells = (f"{1e3 * ours:.1f}", f"{1e3 * wanted:.1f}", f"{ours / wanted:.3f}")
            rows.append((f"{layout.text}, {collective}", *cells))
            # Neither way: what is faster than its model is not what was modelled.
            off = max(ours, wanted), min(ours, wanted)
            name = f"schedules-measured-{layout.hosts}x{layout.ranks_each}-{collective}"
            results.append(Result(name, *off, CLOSE, CLOSENESS))
    return [dataclasses.replace(results[0], rows=rows), *results[1:]]


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
