# SPDX-License-Identifier: Apache-2.0
"""A step of four emulated stages whose backward comes in two parts, against the bound without any
bubble and against PyTorch's schedules of as much memory, or of any."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from benchmark import Result, run_ranks

RANKS, ROUNDS, MICROBATCHES = 4, 5, 8
LAYERS_A_RANK, SECONDS = 4, 0.02  # as in tests/bench/jobs/bubble_job.py
BOUND = MICROBATCHES * LAYERS_A_RANK * 3 * SECONDS
ONE_F_ONE_B = RANKS * LAYERS_A_RANK  # layers whose activations its first rank keeps
PEERS = (
    "Schedule1F1B",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleZBVZeroBubble",
    "ScheduleDualPipeV",
)


@dataclass(frozen=True)
class Case:
    memory: float
    chunks: int
    limit: float

    @property
    def name(self) -> str:
        return f"bubble-{self.memory:.2g}-of-{self.chunks}"


CASES = (
    Case(1, 1, 1.15),
    Case(1, 4, 1.06),
    Case(2, 4, 1.06),
    Case(1 / 2, 4, 1.30),
    Case(1 / 3, 4, 1.45),
)


def run() -> list[Result]:
    rows: list[tuple[str, ...]] = [("of the bound without bubble", "memory", "min", "median")]
    medians: dict[str, float] = {}
    memory: dict[str, float] = {}
    for number, case in enumerate(CASES):
        arguments = (MICROBATCHES, ROUNDS, case.memory, case.chunks)
        found = run_ranks(RANKS, "bubble_job.py", *arguments, *(PEERS if number == 0 else ()))
        for who, seconds in found["seconds"].items():
            name = case.name if who == "ours" else who
            medians[name] = statistics.median(seconds)
            memory[name] = found["kept"][who] / ONE_F_ONE_B
            figures = (memory[name], min(seconds) / BOUND, medians[name] / BOUND)
            rows.append((name, *(f"{figure:.3f}" for figure in figures)))
        rows += [(name, why[:60], "", "") for name, why in found["failed"].items()]
    results: list[Result] = []
    for case in CASES:
        fitting = [
            medians[peer] for peer in PEERS if memory.get(peer, 99) <= max(memory[case.name], 1)
        ]
        limit = min(case.limit, *(median / BOUND for median in fitting))
        goal = (
            f"a step at {case.memory:.2g} of 1F1B's memory, {case.chunks} groups of layers a rank: "
            f"at most {case.limit:g} of the bound without bubble, and below each of PyTorch's "
            "schedules that keeps no more"
        )
        results.append(Result(case.name, medians[case.name], BOUND, round(limit, 4), goal))
    results[0] = replace(results[0], rows=rows)
    return results
