# SPDX-License-Identifier: Apache-2.0
"""Pipelines whose stages exchange tensors with their siblings: all ranks of a tensor-parallel group
work in one order, whatever the schedule is and however late ranks are. Bit by bit, in integers."""

from __future__ import annotations

import os
import random

import pytest
import torch
from jobs import tensor_jobs, tensor_schedule_jobs

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
ROUNDS = 300 if LONG else 24
STEPS = 3  # the first is recorded, the others follow its plan
ALONE = {"ddp": True, "microbatches": 1}


def settings(dice: random.Random, ranks: int) -> dict[str, object]:
    return {
        "partitions": 2,
        "tensor_parallel_degree": 2,
        "ddp": True,
        "auto_partition": False,
        "default_partition": 0,
        "microbatches": dice.choice([2, 4]),
        "active_microbatches": dice.randint(1, 4),
        "pipeline": dice.choice(["simple", "interleaved", "zero_bubble"]),
        "optimize": dice.choice(["speed", "memory"]),
        "prescaled_batch": dice.choice([False, True]),
        "placement_strategy": dice.choice(["cluster", "spread", "TPD"]),
    }


@pytest.mark.parametrize("ranks", [4, 8] if LONG else [4])
def test_random_models_give_the_bits_of_one_process_however_late_ranks_are(pool, ranks):
    for seed in range(ROUNDS):
        config = settings(random.Random(seed), ranks)
        (expected,) = tensor_jobs.alone(tensor_schedule_jobs.train, ALONE, seed, 1)

        results = pool(ranks).run("tensor_schedule_jobs:train", config, seed, STEPS)

        names = set()
        for rank, steps in enumerate(results):
            for number, found in enumerate(steps):
                where = f"seed {seed}, rank {rank}, step {number}, {config}"
                share, shares = found["share"]
                assert torch.equal(found["output"], expected["output"].chunk(shares)[share]), where
                for name, gradient in found["gradients"].items():
                    # Averages over replicas, of which each has a summand of one process's loss.
                    wanted = expected["gradients"][name]
                    assert torch.equal(gradient * shares, wanted), f"{where}: {name}"
                    names.add(name)
        assert names == expected["gradients"].keys(), f"seed {seed}, {config}"
