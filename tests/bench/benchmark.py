# SPDX-License-Identifier: Apache-2.0
"""The parts of a benchmark (tests/bench/benches), which ci/bench runs.

A benchmark is a module with `GOAL`, one sentence, and `run() -> Result` (or a list of them), which
measures us and a peer alternately in one run, so that a busy machine slows both. `NEEDS_BUILD =
False` says that it measures no build of this tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_ranks(
    ranks: int, job: str, *arguments: object, python: Path | None = None, **variables: str
) -> Any:
    """RESULT of the first of `ranks` ranks of tests/bench/jobs/`job`, from JSON."""
    interpreter = python or ROOT / ".venv/bin/python"
    done = subprocess.run(
        [
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"),
            *("--mca", "btl", "self,vader,tcp", "--mca", "btl_vader_single_copy_mechanism", "none"),
            *("-np", str(ranks), str(interpreter), str(ROOT / "tests/bench/jobs" / job)),
            *map(str, arguments),
        ],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "SMP_PROGRESS": "off",
            "PYTHONPATH": str(ROOT / "build" / "release" / "python"),
            **variables,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode != 0 or len(results) != 1:
        raise SystemExit(f"ci/bench: {job} failed:\n{done.stdout}{done.stderr}")
    return json.loads(results[0].removeprefix("RESULT "))


def timed_saves(job: str, rounds: int) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """Medians, in seconds by their names, and a table of what one rank of `job` tells by the clock
    of tests/bench/jobs/save_clock.py."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        told = run_ranks(1, job, Path(folder), rounds)
    times: dict[str, list[float]] = told["seconds"]
    # The first save gets its memory from the system, as a copy does; later ones keep it.
    middles = {name: middle(seconds) for name, seconds in times.items()}
    rows: list[tuple[str, ...]] = [(f"{told['bytes'] / 1e9:.1f} GB, ms", "median (min-max)")]
    return middles, rows + [(name, spread(seconds)) for name, seconds in times.items()]


def test_program(name: str) -> Path:
    """A program of the tests in build/release, which ci/build alone does not make."""
    command = [ROOT / ".venv/bin/cmake", "--build", "--preset", "release", "--target", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"ci/bench: {name} cannot be built:\n{done.stdout}{done.stderr}")
    return ROOT / "build" / "release" / "bin" / name


def build_program(folder: Path, source: Path, name: str) -> Path:
    """A C++ program, by the installed library, as users build."""
    release, installed = ROOT / "build/release", folder / "installed"
    torch = next((ROOT / ".venv/lib").glob("python3*/site-packages/torch"))
    for command in (
        ["cmake", "--install", release, "--component", "cpp", "--prefix", installed],
        ["cmake", "-S", source, "-B", folder / "build", "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={installed}",
         f"-DSMP_TORCH_DIR={torch}"],
        ["cmake", "--build", folder / "build"],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"ci/bench: {command} failed:\n{done.stdout}{done.stderr}")
    return folder / "build" / name


def middle(times: list[float]) -> float:
    """The median; of an even number the later of the two."""
    return sorted(times)[len(times) // 2]


def spread(times: list[float], digits: int = 0) -> str:
    """Seconds as milliseconds: the median, and between what."""
    return (
        f"{1e3 * middle(times):.{digits}f} "
        f"({1e3 * min(times):.{digits}f}-{1e3 * max(times):.{digits}f})"
    )


@dataclass(frozen=True)
class Result:
    """`ratio` is ours/peer in the unit that the bench names; it passes up to `limit`."""

    bench: str
    ours: float
    peer: float
    limit: float
    goal: str
    rows: list[tuple[str, ...]] = field(default_factory=list)  # the table, headings first

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def passed(self) -> bool:
        return self.ratio <= self.limit

    def table(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = []
        for row in self.rows:
            cells = [
                cell.ljust(width) if number == 0 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def json_line(self) -> str:
        return json.dumps(
            {
                "bench": self.bench,
                "ours": round(self.ours, 6),
                "peer": round(self.peer, 6),
                "ratio": round(self.ratio, 4),
                "limit": self.limit,
                "goal": self.goal,
                "pass": self.passed,
            }
        )
