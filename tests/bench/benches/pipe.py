# SPDX-License-Identifier: Apache-2.0
"""A step of four emulated pipeline stages against the ideal one and PyTorch's schedules."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks

STAGES, ROUNDS = 4, 7
FORWARD_SECONDS, BACKWARD_SECONDS = 0.02, 0.04  # as in tests/bench/jobs/pipe_job.py
LIMIT = 1.03
GOAL = (
    f"four emulated stages, 8 and 16 microbatches: at most {LIMIT:g} of the ideal "
    "(m + stages - 1)(t_forward + t_backward), and below PyTorch's GPipe and 1F1B"
)


def run() -> Result:
    rows: list[tuple[str, ...]] = [
        ("seconds a step, emulated", "m", "min", "median", "max", "of ideal")
    ]
    worst: tuple[float, float, float] | None = None  # ours, ideal, limit
    for microbatches in (8, 16):
        ideal = (microbatches + STAGES - 1) * (FORWARD_SECONDS + BACKWARD_SECONDS)
        medians: dict[str, float] = {}
        times = run_ranks(STAGES, "pipe_job.py", microbatches, ROUNDS, STAGES)  # one for each step
        for name, seconds in times.items():
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
