# SPDX-License-Identifier: Apache-2.0
"""Lines of 1,024 ranks on their way through the launcher (tests/bench/programs/log_lines.cc)."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter

from benchmark import Result, test_program

RANKS, LINES = 1024, 2000
A_SECOND = 200  # of each rank
MICROSECONDS = 1e6 / (RANKS * A_SECOND)  # one core takes them as they come
MEMORY_GROWTH = 1.02
GOAL = (
    f"{RANKS:,} ranks that write {A_SECOND} lines a second each: none is lost, one core is enough "
    f"({MICROSECONDS:.1f} us a line), and memory does not grow with the lines"
)


def run() -> list[Result]:
    program = test_program("log_lines")
    with subprocess.Popen(
        [program, "pass", str(RANKS), str(LINES)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        came = Counter(line.partition(">:step ")[0] for line in process.stdout)
        found = json.loads(process.stderr.read())
    if process.returncode != 0:
        raise SystemExit(f"ci/bench logs: log_lines ended with {process.returncode}")
    by_rank: Counter[int] = Counter()
    for tag, lines in came.items():
        match = re.fullmatch(r"\[1,mpirank:(\d+),algo-\d+\]<std(?:out|err)", tag)
        if match:
            by_rank[int(match[1])] += lines
    lost = sum(LINES - by_rank[rank] for rank in range(RANKS))
    microseconds = 1e6 * found["processor_s"] / (RANKS * LINES)
    rows = [
        (f"{RANKS} ranks, {LINES} lines each", "", "limit"),
        ("lines lost", str(lost), "0"),
        ("processor time a line, us", f"{microseconds:.2f}", f"{MICROSECONDS:.2f}"),
        ("peak memory, MB", f"{found['peak_kb'] / 1e3:.1f}", ""),
        ("peak memory at half of them, MB", f"{found['peak_of_half_kb'] / 1e3:.1f}", ""),
    ]
    return [
        Result("logs-lost", 1 + lost, 1, 1, GOAL, rows),
        Result("logs-processor", microseconds, MICROSECONDS, 1, GOAL),
        Result("logs-memory", found["peak_kb"], found["peak_of_half_kb"], MEMORY_GROWTH, GOAL),
    ]
