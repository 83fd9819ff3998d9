# SPDX-License-Identifier: Apache-2.0
"""Frame of the script of each mistake: a small model, data, a step, an optimizer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

FOLDER = Path(os.environ.get("SM_MODEL_DIR", "model")).parent  # outside of a job: not used
Batch = tuple[torch.Tensor, torch.Tensor]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(count: int, size: int = 8) -> Iterator[Batch]:
    """Each replica's own."""
    numbers = torch.Generator().manual_seed(smp.dp_rank())
    for _ in range(count):
        x = torch.randn(size, 8, generator=numbers)
        yield x, torch.randint(4, (size,), generator=numbers)


@smp.step
def train_step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = F.cross_entropy(model(x), y)
    model.backward(loss)
    return loss


@smp.step
def eval_step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


def wrap(module: nn.Module | None = None) -> tuple[Any, Any]:
    model = smp.DistributedModel(module or net())
    return model, optimizer_of(model)


def optimizer_of(model: Any) -> Any:
    return smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))


def train(model: Any, optimizer: Any, steps: int) -> None:
    for x, y in batches(steps):
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


def check_replicas_are_equal(model: Any) -> None:
    own = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for other in smp.allgather(own, smp.DP_GROUP):
        for name, value in own.items():
            assert torch.equal(other[name], value), f"{name} differs between replicas"
