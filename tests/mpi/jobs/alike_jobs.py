# SPDX-License-Identifier: Apache-2.0
"""Ranks that should be alike and differ, and the other way round."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn


def other_model_on_rank_1() -> None:
    smp.DistributedModel(nn.Linear(8, 16 + smp.rank()))


def train_on(seed_by_rank: bool) -> None:
    """Three steps, on batches of this rank's own or on the same everywhere."""
    model = smp.DistributedModel(nn.Linear(8, 4))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).pow(2).mean()
        model.backward(loss)
        return loss

    numbers = torch.Generator().manual_seed(smp.dp_rank() if seed_by_rank else 5)
    for _ in range(3):
        optimizer.zero_grad()
        step(torch.randn(4, 8, generator=numbers))
        optimizer.step()
        smp.barrier()


def train_after_a_model_that_failed() -> None:
    try:
        other_model_on_rank_1()
    except smp.exceptions.SMPPartitionError as error:
        kept = error  # its traceback holds the model
    train_on(seed_by_rank=True)
    assert kept.__traceback__ is not None


def layer_replaced() -> None:
    model = smp.DistributedModel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)))
    model.get_module()[1] = nn.Linear(8, 4)

    @smp.step
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).pow(2).mean()
        model.backward(loss)
        return loss

    step(torch.ones(4, 8))
