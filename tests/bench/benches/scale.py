# SPDX-License-Identifier: Apache-2.0
"""What a rank costs in jobs of 8 to 1,024: requests of the store, bytes, connections, look-ups,
memory, threads and processor time. Ranks are threads with sessions of their own over one TCPStore,
without a model (tests/bench/programs/light_ranks.cc)."""

from __future__ import annotations

import json
import math
import os
import subprocess
from typing import Any

from benchmark import ROOT, Result, test_program

START_SECONDS = 5
MORE_PROCESSOR_TIME = 3
STRAGGLER_SECONDS, STRAGGLER_REQUESTS = 60, 2
MISMATCH_SECONDS = 15
LOSS_SECONDS = 30
GOAL = (
    "a rank of 1,024 makes as many requests as one of 8, or more by the logarithm; they start in "
    f"{START_SECONDS} s, with at most {MORE_PROCESSOR_TIME} times the processor time a rank; wait "
    f"for one that is late with at most {STRAGGLER_REQUESTS} requests a second and rank; a "
    f"mismatch is named within {MISMATCH_SECONDS} s and a lost rank within {LOSS_SECONDS} s"
)
SIZES = [8, 32, 128, 512, 1024]
COLUMNS = {
    "requests": "requests",
    "bytes": "bytes",
    "connections": "connections",
    "lookups": "look-ups",
    "processor_s": "processor ms",
    "memory_kb": "memory KB",
}

Row = dict[str, Any]


def measured(part: str, ranks: int, *arguments: object) -> list[Row]:
    program = ROOT / "build" / "release" / "bin" / "light_ranks"
    done = subprocess.run(
        [program, part, str(ranks), *map(str, arguments)],
        # A name server that does not answer would be measured instead.
        env={**os.environ, "OMP_NUM_THREADS": "1", "RES_OPTIONS": "timeout:1 attempts:1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode != 0:
        raise SystemExit(f"ci/bench scale: {part} of {ranks} ranks failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def growth(points: dict[int, float]) -> str:
    """The exponent of the ranks with which a cost grows, by least squares over logarithms."""
    some = [(math.log(ranks), math.log(value)) for ranks, value in points.items() if value > 0]
    if len(some) < 2:
        return "-"
    middle_x = sum(x for x, _ in some) / len(some)
    middle_y = sum(y for _, y in some) / len(some)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in some)
    return f"N^{slope / sum((x - middle_x) ** 2 for x, _ in some):.2f}"


def shown(name: str, value: float) -> str:
    if name == "processor_s":
        return f"{1e3 * value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def table(part: str, found: dict[int, Row]) -> list[tuple[str, ...]]:
    """Costs a rank by their number, and how they grow."""
    rows = [(f"{part}, a rank", *map(str, found), "growth")]
    for name, heading in COLUMNS.items():
        points = {ranks: row[name] / ranks for ranks, row in found.items()}
        cells = (shown(name, value) for value in points.values())
        rows.append((heading, *cells, growth(points)))
    for heading, digits in (("wall_s", 2), ("threads", 0)):
        cells = (f"{row[heading]:.{digits}f}" for row in found.values())
        rows.append((heading.replace("_s", " s, all"), *cells, ""))
    return rows


def costs_of(part: str, found: dict[int, Row]) -> Result:
    """Requests a rank of the largest job beside those of the smallest."""
    few, many = min(found), max(found)
    logarithm = math.log(many) / math.log(few)
    ours, peer = (found[ranks]["requests"] / ranks for ranks in (many, few))
    return Result(f"scale-{part}", ours, peer, logarithm, GOAL, table(part, found))


def run() -> list[Result]:
    test_program("light_ranks")
    by_part: dict[str, dict[int, Row]] = {}
    for ranks in SIZES:
        rows = measured("job", ranks)
        rows += measured("mismatch", ranks)
        rows += measured("watch", ranks)
        rows += measured("straggler", ranks, STRAGGLER_SECONDS)
        for row in rows:
            by_part.setdefault(row["part"], {})[ranks] = row
    straggler, mismatch = by_part.pop("straggler"), by_part.pop("mismatch")
    loss = by_part.pop("loss")
    results = [costs_of(part, found) for part, found in by_part.items()]
    few, many = SIZES[0], SIZES[-1]
    start = by_part["start"]
    processor = (start[ranks]["processor_s"] / ranks for ranks in (many, few))
    waits = straggler[many]["requests"] / many / straggler[many]["wall_s"]
    return [
        *results,
        Result("scale-start-seconds", start[many]["wall_s"], START_SECONDS, 1, GOAL),
        Result("scale-start-processor", *processor, MORE_PROCESSOR_TIME, GOAL),
        Result(
            "scale-straggler", waits, STRAGGLER_REQUESTS, 1, GOAL, table("straggler", straggler)
        ),
        Result(
            "scale-mismatch",
            mismatch[many]["wall_s"],
            MISMATCH_SECONDS,
            1,
            GOAL,
            table("mismatch", mismatch),
        ),
        Result("scale-loss", loss[many]["wall_s"], LOSS_SECONDS, 1, GOAL, table("loss", loss)),
    ]
