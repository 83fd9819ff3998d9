# SPDX-License-Identifier: Apache-2.0
"""Wherever modules are, a model computes the same: random models of nested modules, of which some
have several parents and some are called several times, with random places for them."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from jobs import assignment_jobs

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
SEEDS = range(60) if LONG else range(6)
STEPS = 3  # the first shows who calls whom, the others go by it


def settings(seed: int, partitions: int, deterministic: bool) -> dict[str, Any]:
    dice = random.Random(seed)
    return {
        "partitions": partitions,
        "microbatches": assignment_jobs.draw(seed).microbatches,
        "active_microbatches": dice.randint(1, 4),
        "pipeline": dice.choice(["simple", "interleaved", "zero_bubble"]),
        "deterministic_server": deterministic,
        "auto_partition": False,
        "default_partition": dice.randrange(partitions),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "free"])
@pytest.mark.parametrize("partitions", [2, 3, 4] if LONG else [2, 4])
def test_losses_and_gradients_are_those_of_one_process(pool, partitions, deterministic, seed):
    config = settings(seed, partitions, deterministic)

    results = pool(partitions).run("assignment_jobs:train", config, seed, STEPS)

    losses, gradients = assignment_jobs.train_alone(seed)
    exact = assignment_jobs.draw(seed).whole
    if exact:
        # Far from where doubles stop to hold all whole numbers.
        assert max(map(abs, losses)) < 2**45
        assert all(gradient.abs().max() < 2**45 for gradient in gradients.values())
    for number in range(STEPS):
        owned: list[str] = []
        for rank in results:
            own_losses, own_gradients = rank[number]
            assert own_losses == losses, config  # no addition of theirs is cut
            for name, gradient in own_gradients.items():
                same = exact or deterministic
                assert agree(gradient, gradients[name], bitwise=same), f"{name}, {config}"
            owned += own_gradients
        assert sorted(owned) == sorted(gradients), "each parameter on exactly one partition"


def agree(ours: torch.Tensor, theirs: torch.Tensor, bitwise: bool) -> bool:
    """To the bit, or up to the order in which gradients of at most eight uses are added: each
    addition errs by 2^-24 of what it adds."""
    return (
        torch.equal(ours, theirs)
        if bitwise
        else bool((ours - theirs).norm() <= 1e-6 * theirs.norm())
    )
