# SPDX-License-Identifier: Apache-2.0
"""The models of PyTorch's own FSDP tests, under the library and in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.testing._internal import common_fsdp

BATCH, STEPS, MICROBATCHES = 8, 4, 2


class OneOutput(nn.Module):
    """DoubleLinear, whose two results become one."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.inner = common_fsdp.DoubleLinear(8, use_second_linear=both)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        return out[0] * out[1] if isinstance(out, tuple) else out


class Recurrent(nn.Module):
    """A layer of torch's that keeps weak references to its own weights, between two others."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)
        self.layer = kind(8, 8, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.layer(self.before(x)[:, None].expand(-1, 3, -1))
        return self.after(out[:, -1])


class Transformer(nn.Module):
    """TransformerWithSharedParams, which takes [time, batch], fed [batch, time]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = common_fsdp.TransformerWithSharedParams(
            common_fsdp.DummyProcessGroup(0, 1),
            common_fsdp.DEVICEInitMode.DEVICE_NEVER,
            add_bn=False,
            deterministic=True,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = (x.abs() * 7).long() % 23
        return self.model(ids[:, :6].t(), ids[:, 4:].t())


def nested() -> nn.Module:
    return common_fsdp.NestedWrappedModule(
        common_fsdp.DummyProcessGroup(0, 1),
        False,
        common_fsdp.DEVICEInitMode.DEVICE_NEVER,
        deterministic=True,
    )


KINDS: dict[str, Callable[[], nn.Module]] = {
    "TransformerWithSharedParams": Transformer,
    "NestedWrappedModule": nested,
    "LSTM": lambda: Recurrent(nn.LSTM),
    "GRU": lambda: Recurrent(nn.GRU),
    "MLPStack": lambda: common_fsdp.MLPStack(8),
    "MLP with a buffer": lambda: common_fsdp.MLP(8, with_buffer=True),
    "DoubleLinear": lambda: OneOutput(True),
    "DoubleLinear, one unused": lambda: OneOutput(False),
}


def made(kind: str) -> nn.Module:
    torch.manual_seed(7)
    return KINDS[kind]().double()


def batch(step: int) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, 8, generator=numbers, dtype=torch.float64)


def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def alone(kind: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    model = made(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = [loss_of(model, x) for x in batch(step).chunk(MICROBATCHES)]
        (sum(parts, torch.zeros(())) / MICROBATCHES).backward()
        optimizer.step()
        losses.append(float(sum(parts, torch.zeros(())).detach() / MICROBATCHES))
    return losses, model.state_dict()


def train(kind: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """All replicas get the same batches, so that each learns what one process does."""
    model = smp.DistributedModel(made(kind))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05))

    @smp.step
    def step_of(model: Any, x: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model, x)
        model.backward(loss)
        return loss

    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(step_of(model, batch(step)).reduce_mean().item())
        optimizer.step()
    return losses, dict(model.state_dict())
