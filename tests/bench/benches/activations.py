# SPDX-License-Identifier: Apache-2.0
"""Counts microbatches whose activations each stage holds at once, against the formula."""

from __future__ import annotations

from benchmark import Result, run_ranks

STAGES, MICROBATCHES = 4, 16
GOAL = (
    "activations of 16 microbatches in 4 stages: at most min(active, stages - i + 2) of them on "
    "stage i, all with the simple schedule"
)


def run() -> Result:
    found = run_ranks(STAGES, "activation_job.py", MICROBATCHES, STAGES)
    active = STAGES + 2  # the default of active_microbatches
    formula = [min(active, STAGES - stage + 2) for stage in range(STAGES)]
    rows: list[tuple[str, ...]] = [
        ("microbatches alive at once", *(f"stage {stage}" for stage in range(STAGES))),
        *((name, *map(str, peaks)) for name, peaks in found.items()),
        ("limit, interleaved", *map(str, formula)),
    ]
    pairs = [(ours, limit) for ours, limit in zip(found["interleaved"], formula, strict=True)]
    pairs += [(ours, MICROBATCHES) for ours in found["simple"]]
    worst = max(pairs, key=lambda pair: pair[0] / pair[1])
    return Result("activations", *map(float, worst), 1.0, GOAL, rows)
