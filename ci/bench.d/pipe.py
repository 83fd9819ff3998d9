# SPDX-License-Identifier: Apache-2.0
"""A step of four emulated pipeline stages against the ideal one and PyTorch's schedules."""

from __future__ import annotations

import json
import os
import statistics
import subprocess

from benchmark import ROOT, Result

STAGES, ROUNDS = 4, 7
FORWARD_SECONDS, BACKWARD_SECONDS = 0.02, 0.04  # as in ci/bench_jobs/pipe_job.py
LIMIT = 1.03
GOAL = (
    f"four emulated stages, 8 and 16 microbatches: at most {LIMIT:g} of the ideal "
    "(m + stages - 1)(t_forward + t_backward), and below PyTorch's GPipe and 1F1B"
)


def measure(microbatches: int) -> dict[str, list[float]]:
    """Seconds of each step by name, as the job's first rank prints them."""
    python = ROOT / ".venv" / "bin" / "python"
    done = subprocess.run(
        [
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"),
            *("--mca", "btl", "self,vader,tcp", "--mca", "btl_vader_single_copy_mechanism", "none"),
            *("-np", str(STAGES), str(python), str(ROOT / "ci/bench_jobs/pipe_job.py")),
            *(str(microbatches), str(ROUNDS), str(STAGES)),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "SMP_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if len(results) != 1:
        raise SystemExit(f"ci/bench pipe: the job failed:\n{done.stdout}{done.stderr}")
    seconds: dict[str, list[float]] = json.loads(results[0].removeprefix("RESULT "))
    return seconds


def run() -> Result:
    rows: list[tuple[str, ...]] = [
        ("seconds a step, emulated", "m", "min", "median", "max", "of ideal")
    ]
    worst: tuple[float, float, float] | None = None  # ours, ideal, limit
    for microbatches in (8, 16):
        ideal = (microbatches + STAGES - 1) * (FORWARD_SECONDS + BACKWARD_SECONDS)
        medians: dict[str, float] = {}
        for name, seconds in measure(microbatches).items():
            medians[name] = statistics.median(seconds)
            figures = (min(seconds), medians[name], max(seconds))
            rows.append(
                (
                    name,
                    str(microbatches),
                    *(f"{figure:.3f}" for figure in figures),
                    f"{medians[name] / ideal:.3f}",
                )
            )
        rows.append(("ideal", str(microbatches), *3 * (f"{ideal:.3f}",), "1.000"))
        ours = medians.pop("ours")
        limit = min(LIMIT, *(median / ideal for median in medians.values()))
        if worst is None or ours / ideal - limit > worst[0] / worst[1] - worst[2]:
            worst = (ours, ideal, limit)
    assert worst is not None
    return Result("pipe", worst[0], worst[1], round(worst[2], 4), GOAL, rows)
