# SPDX-License-Identifier: Apache-2.0
"""Balance of the partitioner's stages on a fixed corpus, and the time that it takes."""

from __future__ import annotations

import json
import statistics
import subprocess

from benchmark import Result, test_program

LIMIT = 1.05
SECONDS = 1.0
GOAL = (
    f"`auto` loads no device with more than {LIMIT:g} times the contiguous optimum, leaves none "
    f"empty, and partitions 10,000 units over 64 devices in under {SECONDS:g} s"
)


def run() -> Result:
    program = test_program("partition_bench")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    quality, seconds = measured["quality"], measured["seconds"]

    rows = [("heaviest device / contiguous optimum", "D", "auto", "compat", "whole layers")]
    for row in quality:
        figures = (f"{row[key]:.3f}" for key in ("auto", "compat", "layers"))
        rows.append((row["model"], str(row["partitions"]), *figures))
    rows.append(("10,000 units, s", "64", f"{statistics.median(seconds):.2f}", "", ""))

    # A failure shows in the ratio: an empty device and a slow run count as out of bounds.
    worst = max(row["auto"] for row in quality)
    if any(row["empty"] > 0 for row in quality):
        worst = float("inf")
    worst = max(worst, LIMIT * statistics.median(seconds) / SECONDS)
    return Result("part", worst, 1.0, LIMIT, GOAL, rows)
