# SPDX-License-Identifier: Apache-2.0
"""However modules of other partitions are called, each of their backwards runs as often as in one
process: the same bits, nothing left behind, and no rank that waits for a backward nobody asks for.
"""

from __future__ import annotations

import functools
import itertools
import os
from typing import Any

import pytest
import torch
from jobs.call_shapes import NAMES
from jobs.counting_models import (
    BREAKABLE,
    MICROBATCHES,
    ROWS,
    AllCases,
    Fragile,
    belongs,
    train_alone,
)

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
# The first step shows who calls whom, the later ones go by it; a batch without rows in between.
SIZES = [ROWS, ROWS, 0, ROWS]

# Partitions, schedule, a fixed order of work or none, and whether results go straight to who uses
# them.
CHOSEN = [(2, "interleaved", False, "on"), (2, "interleaved", True, "off")]
GRID = list(
    itertools.product(
        (2, 3, 4), ("simple", "interleaved", "zero_bubble"), (False, True), ("on", "off")
    )
)


def settings(partitions: int, schedule: str, deterministic: bool, **others: Any) -> dict[str, Any]:
    return {
        "partitions": partitions,
        "microbatches": MICROBATCHES,
        "pipeline": schedule,
        "deterministic_server": deterministic,
        "auto_partition": False,
        "default_partition": 0,
        **others,
    }


@functools.cache
def alone(case: str, rows: int) -> tuple[list[float], dict[str, torch.Tensor | None]]:
    losses, gradients = train_alone(AllCases(), case, rows)
    return losses, {name: g for name, g in gradients.items() if belongs(name, case)}


@pytest.fixture(scope="module", params=GRID if LONG else CHOSEN, ids=lambda way: f"{way}")
def found(request, pool):
    """Counts of ranks in all cases: one job for each way to run them."""
    *way, direct = request.param
    config = settings(*way)
    return pool(way[0]).run("counting_jobs:count", config, NAMES, SIZES, config, direct)


def compare(ours: list[Any], losses: list[float], gradients: dict[str, torch.Tensor | None]):
    """`ours` has losses and gradients of each rank."""
    together: dict[str, torch.Tensor | None] = {}
    for own_losses, own_gradients in ours:
        assert own_losses == losses
        assert not together.keys() & own_gradients.keys(), "each parameter on one partition"
        together |= own_gradients
    assert together.keys() == gradients.keys()
    for name, expected in gradients.items():
        own = together[name]
        if own is None or expected is None:
            # No gradient is another thing than one of zeros, which optimizers would step.
            assert own is expected, name
        else:
            assert torch.equal(own, expected), name


@pytest.mark.parametrize("case", NAMES)
def test_gradients_are_those_of_one_process_bit_by_bit(found, case):
    for rank in found:
        assert not isinstance(rank[case], str), rank[case]
    for step, rows in enumerate(SIZES):
        ours = [rank[case][step][:2] for rank in found]

        compare(ours, *alone(case, rows))


@pytest.mark.parametrize("case", NAMES)
def test_nothing_is_held_behind_a_step(found, case):
    for rank in found:
        assert [held for _, _, held in rank[case]] == [0] * len(SIZES)


@pytest.mark.parametrize("partitions", [2, 3, 4] if LONG else [2])
def test_nothing_is_held_behind_a_microbatch(pool, partitions):
    config = settings(partitions, "interleaved", False, active_microbatches=1)

    results = pool(partitions).run("counting_jobs:count_between_microbatches", config, NAMES, SIZES)

    for case in NAMES:
        for counts, _ in (rank[case] for rank in results):
            assert counts == [0] * (MICROBATCHES * len(SIZES)), case
        assert sum(noted for _, noted in (rank[case] for rank in results)) > 0, case


@pytest.mark.parametrize("way", GRID[::2] if LONG else CHOSEN[:1], ids=lambda way: f"{way[:3]}")
@pytest.mark.parametrize("where", BREAKABLE)
def test_failure_in_a_backward_reaches_all_ranks_and_the_next_step_counts_right(pool, where, way):
    partitions, *others, _ = way

    results = pool(partitions).run(
        "counting_jobs:fail_in_backward", settings(partitions, *others), where, ROWS
    )

    for text, *_ in results:
        assert "ArithmeticError: this backward fails on purpose" in text
    compare([ours for _, *ours in results], *train_alone(Fragile(), "fragile", ROWS))


def test_tail_with_fewer_rows_than_microbatches_is_refused_and_the_next_step_counts_right(pool):
    config = settings(2, "interleaved", False)

    results = pool(2).run("counting_jobs:come_to_the_tail", config, ROWS, MICROBATCHES - 1)

    for text, *_ in results:
        assert "has 3 entries along axis 0, which microbatches=4 does not divide" in text
    compare([ours for _, *ours in results], *train_alone(Fragile(), "fragile", ROWS))


@pytest.mark.skipif(not LONG, reason="1,000 steps: with --long only")
@pytest.mark.parametrize("schedule", ["simple", "interleaved", "zero_bubble"])
def test_a_thousand_steps_take_no_more_memory_than_five_hundred(pool, schedule):
    rows = 512 * MICROBATCHES

    results = pool(2).run(
        "counting_jobs:watch_memory", settings(2, schedule, False), NAMES, rows, 1000, 100
    )

    for resident in results:
        assert len(resident) == 10
        # A tensor has 16 KiB. One a microbatch in one case alone, kept from the 500th step on,
        # would be 500 / 16 cases x 4 x 16 KiB, or 2 MiB.
        assert resident[-1] - resident[4] < 1024 * 1024, resident
