# SPDX-License-Identifier: Apache-2.0
"""Time from starting a process to the first line of the user's script: `train` and python3."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmark import ROOT, Result

LIMIT = 3.0
GOAL = f"start `train` to the script's first line in at most {LIMIT:g} times a bare python3's time"
ROUNDS = 30

SCRIPT = "import time; print(time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)\n"


def seconds_to_first_line(command: list[str], environment: dict[str, str]) -> float:
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    stamps = [int(line) for line in done.stdout.splitlines() if line.strip().isdigit()]
    assert len(stamps) == 1, f"{command[0]} printed {done.stdout!r}, not one time stamp"
    return (stamps[0] - start) / 1e9


def row(name: str, seconds: list[float]) -> tuple[str, ...]:
    figures = (min(seconds), statistics.median(seconds), max(seconds))
    return (name, *(f"{1000 * figure:.1f}" for figure in figures))


def run() -> Result:
    binaries = ROOT / ".venv" / "bin"
    environment = dict(os.environ)
    environment["PATH"] = f"{binaries}:{environment['PATH']}"
    with tempfile.TemporaryDirectory(prefix="smp-bench-") as folder:
        code = Path(folder) / "code"
        code.mkdir()
        (code / "first_line.py").write_text(SCRIPT)
        base = Path(folder) / "opt_ml"
        make_tree = ["--make-tree", str(base), "--code", str(code), "--program", "first_line.py"]
        subprocess.run(
            [binaries / "train", *make_tree], env=environment, check=True, capture_output=True
        )
        environment["SAGEMAKER_BASE_DIR"] = str(base)

        def ours() -> float:
            return seconds_to_first_line([str(binaries / "train")], environment)

        def peer() -> float:
            script = str(code / "first_line.py")
            return seconds_to_first_line([str(binaries / "python3"), script], environment)

        measured = alternate(ours, peer)
    rows = [("process start to first line, ms", "min", "median", "max")]
    rows += [row("train", measured[0]), row("python3", measured[1])]
    medians = [statistics.median(seconds) for seconds in measured]
    return Result("launcher", medians[0], medians[1], LIMIT, GOAL, rows)


def alternate(*measures: Callable[[], float]) -> list[list[float]]:
    """Each measure in turn, ROUNDS times; the first round warms the file cache and is dropped."""
    rounds = [[measure() for measure in measures] for _ in range(ROUNDS + 1)]
    return [list(column) for column in zip(*rounds[1:], strict=True)]
