# SPDX-License-Identifier: Apache-2.0
"""From starting the launcher to the first line of the user's script, and the launcher's memory:
`train` and the reference toolkit on the same job tree."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmark import ROOT, Result

sys.path.insert(0, str(ROOT / "tests" / "differential"))
from reference import NoReference, reference_python

TIME_LIMIT = 1 / 20
MEMORY_LIMIT = 1 / 5
GOAL = (
    f"start the user's script in at most {TIME_LIMIT:g} times the reference's time, with at most "
    f"{MEMORY_LIMIT:g} times its peak memory"
)
ROUNDS = 15

# The launcher is the script's parent in both; VmHWM is its peak so far, [kB].
SCRIPT = """\
import time
now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
import os
status = open(f"/proc/{os.getppid()}/status").read()
peak = status.split("VmHWM:")[1].split()[0]
print("first line", now, peak, flush=True)
"""


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Milliseconds to the first line, and the launcher's peak memory in MB."""
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("first line ")]
    assert done.returncode == 0, f"{command} failed: {done.stderr[-2000:]}"
    assert len(said) == 1, f"{command} printed {done.stdout!r}"
    now, peak = said[0].split()[2:]
    return (int(now) - start) / 1e6, int(peak) / 1000


def make_tree(folder: Path, train: Path) -> Path:
    code = folder / "code"
    code.mkdir()
    (code / "first_line.py").write_text(SCRIPT)
    base = folder / "opt_ml"
    subprocess.run(
        [train, "--make-tree", base, "--code", code, "--program", "first_line.py"],
        check=True,
        capture_output=True,
    )
    return base


def row(name: str, values: list[tuple[float, float]]) -> tuple[str, ...]:
    times = [milliseconds for milliseconds, _ in values]
    memory = statistics.median(peak for _, peak in values)
    figures = (min(times), statistics.median(times), max(times), memory)
    return (name, *(f"{figure:.1f}" for figure in figures))


def run() -> list[Result]:
    train = Path(os.environ.get("SMP_TRAIN", ROOT / ".venv" / "bin" / "train"))
    try:
        reference = reference_python()
    except NoReference as error:
        raise SystemExit(f"ci/bench start: {error}") from error
    environment = {
        "HOME": os.environ.get("HOME", "/root"),
        "LANG": "C.UTF-8",
        "SM_STUDIO_LOCAL_MODE": "true",  # "algo-1" resolves nowhere here; the reference would wait
        # The same interpreter runs the script in both cases.
        "PATH": f"{reference.parent}:/usr/local/bin:/usr/bin:/bin",
    }
    with tempfile.TemporaryDirectory(prefix="smp-bench-") as folder:
        base = make_tree(Path(folder), train)
        environment["SAGEMAKER_BASE_DIR"] = str(base)
        pairs = []
        for _ in range(ROUNDS + 1):
            ours = measure([str(train)], environment)
            peer = measure([str(reference.parent / "train")], environment)
            pairs.append((ours, peer))
    ours, peer = ([*column] for column in zip(*pairs[1:], strict=True))  # the first round warms up
    rows = [("process start to first line", "min, ms", "median, ms", "max, ms", "peak, MB")]
    rows += [row("train", ours), row("reference 5.1.4", peer)]
    # Other programs only ever add time, and to a short run relatively more: the fastest runs are
    # what the launchers themselves take.
    times = [min(value[0] for value in values) for values in (ours, peer)]
    memory = [statistics.median(value[1] for value in values) for values in (ours, peer)]
    return [
        Result("start", *times, limit=TIME_LIMIT, goal=GOAL, rows=rows),
        Result("start-memory", *memory, limit=MEMORY_LIMIT, goal=GOAL),
    ]
