# SPDX-License-Identifier: Apache-2.0
"""`train --report` of 64 ranks that made 100,000 steps each, and of 1,024 with 10,000: time,
memory, size of the page. What recording costs a step: of a small one, whose records are as those of
a long one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmark import ROOT, Result, middle, run_ranks, spread


@dataclass(frozen=True)
class Job:
    ranks: int
    steps: int
    seconds: float  # limits
    megabytes: float
    page_megabytes: float


LONG = Job(64, 100_000, 10.0, 300.0, 2.0)
WIDE = Job(1024, 10_000, 60.0, 1000.0, 10.0)
STEP_MS, SHARE = 50.0, 0.005
GOAL = (
    f"the report of {LONG.ranks} ranks x {LONG.steps:,} steps in at most {LONG.seconds:g} s and "
    f"{LONG.megabytes:g} MB, a page of at most {LONG.page_megabytes:g} MB; of {WIDE.ranks:,} ranks "
    f"x {WIDE.steps:,} in {WIDE.seconds:g} s, {WIDE.megabytes:g} MB and {WIDE.page_megabytes:g} "
    f"MB; recording in at most {100 * SHARE:g} % of a step of {STEP_MS:g} ms"
)
#: As a recorder writes them: one line a step at first, then one of two, of four, ….
LINES_BEFORE_DOUBLING = 1 << 14
KINDS = 64  # of ranks, which differ in the times of their steps
COLUMNS = [
    *("step", "steps", "trained", "samples", "begin_us", "total_us", "longest_us", "step_us"),
    *("nested_us", "messages", "bytes", "forward_us", "backward_us", "wait_us"),
    *("gather_us", "reduce_us", "exchange_us", "optimizer_us", "data_us"),
]
SHARES = (300, 550, 60, 0, 30, 0, 30, 20)  # shares of the kinds, in thousandths


def run() -> list[Result]:
    results = [*reported("report", LONG), *reported("report-wide", WIDE)]
    steps = run_ranks(2, "recording_job.py")
    cost_ms = 1e3 * max(0.0, middle(steps["with"]) - middle(steps["without"]))
    rows = [
        ("recording", "", "limit"),
        ("a small step without records, ms", spread(steps["without"], 2), ""),
        ("with records, ms", spread(steps["with"], 2), ""),
        ("recording, ms", f"{cost_ms:.3f}", f"{STEP_MS * SHARE:g}"),
    ]
    return [*results, Result("report-recording", cost_ms, STEP_MS * SHARE, 1.0, GOAL, rows)]


def reported(name: str, job: Job) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="smp-bench-") as folder:
        records, page = Path(folder) / "records", Path(folder) / "report.html"
        records.mkdir()
        for rank in range(job.ranks):
            write_record(records / f"rank-{rank}.jsonl", rank, job)
        size = sum(file.stat().st_size for file in records.iterdir())
        seconds, megabytes = measure(records, page)
        page_megabytes = page.stat().st_size / 1e6
    rows = [
        (f"{job.ranks} x {job.steps:,} steps, {size / 1e6:.0f} MB of records", "", "limit"),
        ("seconds", f"{seconds:.1f}", f"{job.seconds:g}"),
        ("peak memory, MB", f"{megabytes:.0f}", f"{job.megabytes:g}"),
        ("page, MB", f"{page_megabytes:.2f}", f"{job.page_megabytes:g}"),
    ]
    return [
        Result(f"{name}-seconds", seconds, job.seconds, 1.0, GOAL, rows),
        Result(f"{name}-memory", megabytes, job.megabytes, 1.0, GOAL),
        Result(f"{name}-page", page_megabytes, job.page_megabytes, 1.0, GOAL),
    ]


@cache
def step_lines(kind: int, steps_of_job: int) -> tuple[list[str], int]:
    """Lines of the steps of one of several kinds of ranks, and the time at their end."""
    chance = random.Random(kind)
    lines = []
    step, begin, steps_a_line = 1, 1_750_000_000_000_000, 1
    while step <= steps_of_job:
        steps = min(steps_a_line, steps_of_job + 1 - step)
        total = steps * chance.randrange(48_000, 52_000)
        spent = (total * share // 1000 for share in SHARES)
        inside = total * 95 // 100
        row = [step, steps, steps, 8 * steps, begin, total, total // steps, inside, 0, 64 * steps,
               4_000_000 * steps, *spent]  # fmt: skip
        lines.append(json.dumps(row, separators=(",", ":")))
        step, begin = step + steps, begin + total
        if len(lines) % LINES_BEFORE_DOUBLING == 0:
            steps_a_line *= 2
    return lines, begin


def write_record(file: Path, rank: int, of: Job) -> None:
    pipeline = [rank - rank % 8 + stage for stage in range(8)]
    job = {"ranks": of.ranks, "groups": {"PP": pipeline}, "settings": {"microbatches": 32}}
    lines = [
        json.dumps({"format": 1, "rank": rank, "first_rank": rank - rank % 8,
                    "host": f"algo-{1 + rank // 8}", "job": "bench", "columns": COLUMNS}),
        json.dumps({"job": job}),
    ]  # fmt: skip
    of_steps, begin = step_lines(rank % KINDS, of.steps)
    lines += of_steps
    for chosen in (1, 2, 5, 10, 20, 50, 100):
        spans = [[n % 3, 400 * n, 390, n // 2 % 32, f"layers.{rank % 8}"] for n in range(120)]
        text = {"step": chosen, "begin_us": begin, "dropped": False, "rows": spans}
        lines.append(json.dumps({"spans": text}))
    others = [[other, 1000, 4_000_000_000] for other in pipeline if other != rank]
    lines.append(json.dumps({"traffic": others}))
    file.write_text("\n".join(lines) + "\n")


# In a process of its own: the peak of a new process begins with what the one that starts it has,
# and the bench has a gigabyte of records.
MEASURES = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(status, usage.ru_maxrss)
"""


def measure(records: Path, page: Path) -> tuple[float, float]:
    """Seconds, and megabytes at most, of the program alone."""
    command = [ROOT / ".venv" / "bin" / "train", "--report", records, "--output", page]
    begin = time.monotonic()
    told = subprocess.check_output([sys.executable, "-ISc", MEASURES, *command], text=True)
    seconds = time.monotonic() - begin
    status, kilobytes = map(int, told.split())
    if status != 0:
        raise SystemExit(f"ci/bench report: train --report ended with status {status}")
    return seconds, kilobytes / 1e3
