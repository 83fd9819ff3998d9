# SPDX-License-Identifier: Apache-2.0
"""A step of four emulated stages whose backward comes in two parts, against the bound without any
bubble and against PyTorch's schedules of as much memory, or of any."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from benchmark import Result, run_ranks

GOAL = (
    "a step of 4 emulated stages whose backward comes in two parts, of the bound without any "
    "bubble: at most 1.15 at 1F1B's memory, 1.06 at twice, 1.30 at half and 1.45 at a third of it, "
    "1.20 with activations recomputed; below each of PyTorch's schedules that keeps no more"
)
RANKS, ROUNDS = 4, 5
LAYERS_A_RANK, SECONDS = 4, 0.04  # as in tests/bench/jobs/bubble_job.py
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
    way: str
    chunks: int
    limit: float | None  # of the bound; none: below PyTorch's alone
    microbatches: int = 8
    sigma: float = 0
    recomputes: bool = False

    @property
    def name(self) -> str:
        words = ["bubble", f"{self.memory:.2g}", self.way, "of", str(self.chunks)]
        if self.microbatches != 8:
            words.append(f"m{self.microbatches}")
        if self.sigma:
            words.append("varied")
        if self.recomputes:
            words.append("recomputed")
        return "-".join(words)

    @property
    def bound(self) -> float:
        runs = 4 if self.recomputes else 3
        return self.microbatches * LAYERS_A_RANK * runs * SECONDS

    @property
    def kind(self) -> tuple[int, float, bool]:
        """Names the steps of PyTorch's schedules that it is compared with."""
        return self.microbatches, self.sigma, self.recomputes


CASES = (
    Case(1, "loop", 1, 1.15),
    Case(1, "zigzag", 4, 1.15),
    Case(2, "zigzag", 4, 1.06),
    Case(1 / 2, "loop", 4, 1.30),
    Case(1 / 3, "loop", 4, 1.45),
    Case(1, "zigzag", 4, None, microbatches=4),
    Case(1, "zigzag", 4, None, microbatches=16),
    Case(1, "zigzag", 4, None, sigma=0.3),
    Case(1, "loop", 4, 1.20, recomputes=True),
)


def run() -> list[Result]:
    rows: list[tuple[str, ...]] = [("of the bound without bubble", "memory", "min", "median")]
    medians: dict[Case, float] = {}
    memory: dict[Case, float] = {}
    # By kind: each of PyTorch's schedules, with its memory.
    peers: dict[tuple[int, float, bool], list[tuple[float, float]]] = {}
    for case in CASES:
        arguments = (case.microbatches, ROUNDS, case.memory, case.way, case.chunks, case.sigma)
        found = run_ranks(
            *(RANKS, "bubble_job.py", *arguments, int(case.recomputes)),
            *(() if case.kind in peers else PEERS),
        )
        for who, seconds in found["seconds"].items():
            median, kept = statistics.median(seconds), found["kept"][who] / ONE_F_ONE_B
            if who == "ours":
                medians[case], memory[case] = median, kept
            else:
                peers.setdefault(case.kind, []).append((kept, median))
            figures = (kept, min(seconds) / case.bound, median / case.bound)
            name = case.name if who == "ours" else f"{who} {' '.join(map(str, case.kind))}"
            rows.append((name, *(f"{figure:.3f}" for figure in figures)))
        rows += [(name, why[:60], "", "") for name, why in found["failed"].items()]
    results: list[Result] = []
    for case in CASES:
        fitting = [
            median / case.bound
            for kept, median in peers[case.kind]
            if kept <= max(case.memory, memory[case])
        ]
        limits = [*fitting, *([case.limit] if case.limit else [])]
        goal = (
            f"a step of {case.microbatches} microbatches at {case.memory:.2g} of 1F1B's memory, "
            f"{case.chunks} groups of layers a rank in {case.way}"
            + (", times that vary" if case.sigma else "")
            + (", activations recomputed: " if case.recomputes else ": ")
            + (f"at most {case.limit:g} of the bound without bubble, and " if case.limit else "")
            + "below each of PyTorch's schedules that keeps no more"
        )
        results.append(Result(case.name, medians[case], case.bound, round(min(limits), 4), goal))
    results[0] = replace(results[0], rows=rows)
    return results
