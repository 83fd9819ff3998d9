# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_partition.py."""

from __future__ import annotations

from typing import Any, ClassVar

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from models import Stack, make_batches, make_model, make_optimizer
from torch import nn


@smp.step
def train_step(model: Any, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    loss = F.cross_entropy(model(tokens), labels)
    model.backward(loss)
    return loss


def train(steps: int, batch_size: int, **options: Any) -> tuple[list[list[float]], list[str]]:
    """Losses, and the modules of this rank."""
    return _train(make_model(), steps, batch_size, options)


def _train(
    module: nn.Module, steps: int, batch_size: int, options: dict[str, Any]
) -> tuple[list[list[float]], list[str]]:
    model = smp.DistributedModel(module, **options)
    optimizer = smp.DistributedOptimizer(make_optimizer(model))
    losses = []
    for batch in make_batches(steps, batch_size):
        optimizer.zero_grad()
        loss = train_step(model, *batch)
        optimizer.step()
        losses.append([one.item() for one in loss.outputs])
    smp.barrier()  # a rank that leaves right behind its last step may be missed in that step
    return losses, sorted(name for name, _ in model.local_named_modules())


class Choosy(Stack):
    """Looks at values, which a trace by shapes does not have."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens if tokens.sum().item() >= 0 else tokens.abs())


def train_choosy(steps: int, batch_size: int) -> tuple[list[list[float]], list[str]]:
    return _train(make_model(Choosy), steps, batch_size, {})


class Noting(Stack):
    """Keeps what kind of tensor a trace computes: beside the modules, which are as before it."""

    traced: ClassVar[list[str]] = []

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output = super().forward(tokens)
        if smp.is_tracing():
            self.traced.append(type(output).__name__)
        return output


def train_noting(**options: Any) -> list[str]:
    Noting.traced.clear()
    _train(make_model(Noting), 1, 16, options)
    return list(Noting.traced)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).tanh().sin()


class Recomputing(nn.Module):
    """Twelve layers, of which the first are recomputed where they are called."""

    def __init__(self, called: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(12))
        self.called = called

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = smp.checkpoint(layer, x) if number < self.called else layer(x)
        return x


@smp.step
def square_step(model: Any, x: torch.Tensor) -> None:
    model.backward(model(x).square().mean())


def layers_here(marked: int, called: int) -> int:
    """Number of layers on this rank: some recomputed by mark, or by call, on many rows."""
    model = smp.DistributedModel(Recomputing(called), trace_memory_usage=True)
    for layer in model.get_module().layers[:marked]:
        smp.set_activation_checkpointing(layer)
    square_step(model, torch.ones(4096, 8))
    smp.barrier()
    return sum(name.count(".") == 1 for name, _ in model.local_named_modules())


def differ_by_rank() -> None:
    """Rank 1 builds a deeper model than rank 0."""
    model = smp.DistributedModel(make_model(lambda: Stack(4 + smp.rank())))
    for batch in make_batches(1, 16):
        train_step(model, *batch)
