# SPDX-License-Identifier: Apache-2.0
"""Sizes and times that people fetch and wait for: the wheels of dist/, the images that are built,
an import."""

from __future__ import annotations

import os
import subprocess
import time

import tomllib
from benchmark import ROOT, Result, middle, spread

GOAL = (
    "a wheel of at most 25 MB; images within their budgets; importing the package takes at most "
    "1.15 times as long as torch alone"
)
WHEEL_MB = 25
ROUNDS = 9
OURS, TORCH = "import smdistributed.modelparallel.torch", "import torch"


def seconds_of(code: str) -> float:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "build" / "release" / "python")}
    start = time.monotonic()
    subprocess.run([ROOT / ".venv/bin/python", "-c", code], env=environment, check=True)
    return time.monotonic() - start


def imports() -> Result:
    times: dict[str, list[float]] = {OURS: [], TORCH: []}
    for _ in range(ROUNDS):
        for code, taken in times.items():
            taken.append(seconds_of(code))
    rows: list[tuple[str, ...]] = [("import", "ms (min-max)")]
    rows += [(code, spread(taken)) for code, taken in times.items()]
    return Result("size-import", middle(times[OURS]), middle(times[TORCH]), 1.15, GOAL, rows)


def wheels() -> list[Result]:
    """Size of the largest wheel; none where ci/wheel has made none."""
    sizes = {path.name: path.stat().st_size / 1e6 for path in (ROOT / "dist").glob("*.whl")}
    if not sizes:
        return []
    rows: list[tuple[str, ...]] = [("wheel", "MB")]
    rows += [(name, f"{size:.1f}") for name, size in sorted(sizes.items())]
    return [Result("size-wheel", max(sizes.values()), WHEEL_MB, 1.0, GOAL, rows)]


def images() -> list[Result]:
    """Sizes of the images that ci/image has made and an engine that runs holds."""
    found = subprocess.run([ROOT / "ci/engine", "env"], capture_output=True, text=True, check=False)
    name, _, value = found.stdout.strip().partition("=")
    budgets = tomllib.loads((ROOT / "ci/budgets.toml").read_text())["megabytes"]
    results = []
    for tag, budget in (("dev", "image"), ("slim", "image_slim")):
        command = ["docker", "image", "inspect", "--format", "{{.Size}}", f"smp-train:{tag}"]
        environment = os.environ | {name: value, "PATH": f"/usr/bin:{os.environ['PATH']}"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            size = int(done.stdout) / 1e6
            rows = [("image", "MB", "limit"), (tag, f"{size:.0f}", str(budgets[budget]))]
            results.append(Result(f"size-{budget}", size, budgets[budget], 1.0, GOAL, rows))
    return results


def run() -> list[Result]:
    return [*wheels(), *images(), imports()]
