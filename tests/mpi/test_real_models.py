# SPDX-License-Identifier: Apache-2.0
"""Models that people train, over a pipeline: they learn step by step what one process learns."""

from __future__ import annotations

import functools
import itertools
import os

import pytest
import torch
from jobs import real_models

STEPS, BATCH, MICROBATCHES = 20, 8, 4

# Each model, each schedule, each number of partitions, and checkpointing on and off.
CHOSEN = [
    ("gpt2", 4, "interleaved", False),
    ("gpt2", 2, "simple", True),
    ("gpt2", 4, "zero_bubble", False),
    ("gpt2_with_cache", 2, "interleaved", False),
    ("bert", 2, "interleaved", True),
    ("bert", 4, "zero_bubble", True),
    ("vit", 4, "simple", False),
    ("t5", 4, "interleaved", True),
    ("resnet", 2, "simple", False),
    ("resnet", 4, "interleaved", True),
    ("resnet", 2, "zero_bubble", False),
    ("choosing", 4, "interleaved", True),
    ("choosing", 2, "simple", False),
]
SCHEDULES = ("simple", "interleaved", "zero_bubble")
GRID = list(itertools.product(real_models.KINDS, (2, 4), SCHEDULES, (False, True)))
LONG = os.environ.get("SMP_LONG_TESTS") == "1"


@functools.cache
def alone(kind: str) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    return real_models.train_alone(kind, STEPS, BATCH, MICROBATCHES)


@pytest.mark.parametrize(
    ("kind", "partitions", "schedule", "checkpointed"), GRID if LONG else CHOSEN
)
def test_model_learns_what_one_process_learns(pool, kind, partitions, schedule, checkpointed):
    settings = {
        "partitions": partitions,
        "microbatches": MICROBATCHES,
        "pipeline": schedule,
        # Statistics of batches are sums that each microbatch halves: only a fixed order gives those
        # of one process.
        "deterministic_server": kind == "resnet",
    }

    results = pool(partitions).run(
        "real_model_jobs:train", settings, kind, STEPS, BATCH, checkpointed
    )

    losses, state = alone(kind)
    for own_losses, own_state, _ in results:
        # Doubles: the order of sums differs, by some 1e-16 of them, which 20 steps make larger.
        torch.testing.assert_close(
            torch.tensor(own_losses), torch.tensor(losses), rtol=1e-9, atol=1e-9
        )
        assert own_state.keys() == state.keys()
        for name, value in state.items():
            torch.testing.assert_close(
                own_state[name],
                value,
                rtol=1e-8,
                atol=1e-8,
                msg=lambda text, name=name: f"{name}: {text}",
            )
    assert all(local for _, _, local in results), "no partition is without parameters"


@pytest.mark.parametrize(("partitions", "schedule"), [(2, "simple"), (4, "interleaved")])
def test_steps_that_call_other_modules_leave_their_order_and_keep_their_bits(
    pool, partitions, schedule
):
    settings = {
        "partitions": partitions,
        "microbatches": MICROBATCHES,
        "pipeline": schedule,
        "deterministic_server": True,
    }

    results = pool(partitions).run(
        "real_model_jobs:train", settings, "choosing", STEPS, BATCH, False
    )

    losses, state = alone("choosing")
    for own_losses, own_state, _ in results:
        assert own_losses == losses
        for name, value in state.items():
            assert torch.equal(own_state[name], value), name
    assert "a step does not call modules as the recorded step did" in pool(partitions).log_text()
