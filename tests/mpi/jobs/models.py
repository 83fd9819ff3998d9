# SPDX-License-Identifier: Apache-2.0
"""Small models and their training in one process: what distributed results are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.inner(self.norm(x)))


class Stack(nn.Module):
    """Residual blocks, one of them used twice, between an embedding and a head."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.shared = Block()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.shared(self.embed(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.shared(x))


def make_model(kind: Callable[[], nn.Module] = Stack, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(5)
    return kind().to(dtype)


def make_batches(steps: int, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(6)
    return [
        (
            torch.randint(0, 16, (size,), generator=generator),
            torch.randint(0, 4, (size,), generator=generator),
        )
        for _ in range(steps)
    ]


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_alone(
    batches: list[tuple[torch.Tensor, torch.Tensor]], microbatches: int, dtype: torch.dtype
) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    """Losses by step and microbatch, and the trained parameters."""
    torch.set_num_threads(1)  # as the ranks do: threads cut sums differently
    model = make_model(dtype=dtype)
    optimizer = make_optimizer(model)
    losses: list[list[float]] = []
    for tokens, labels in batches:
        optimizer.zero_grad()
        losses.append([])
        for x, y in zip(tokens.chunk(microbatches), labels.chunk(microbatches), strict=True):
            loss = F.cross_entropy(model(x), y)
            loss.backward(torch.full_like(loss, 1 / microbatches))
            losses[-1].append(loss.item())
        optimizer.step()
    return losses, model.state_dict()


def whole_numbers(size: int) -> nn.Module:
    """Layers whose results and gradients are exact whole numbers."""
    torch.manual_seed(3)
    layers = [nn.Linear(4, 4, dtype=torch.float64) for _ in range(size)]
    for parameter in (p for layer in layers for p in layer.parameters()):
        parameter.data = torch.randint(-2, 3, parameter.shape, dtype=torch.float64)
    return nn.Sequential(*layers)
