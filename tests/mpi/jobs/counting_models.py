# SPDX-License-Identifier: Apache-2.0
"""The models of test_backward_counting.py, and their training in one process."""

from __future__ import annotations

import random

import torch
from jobs.call_shapes import CASES, WIDTH, on
from torch import nn

MICROBATCHES = 4
ROWS = 40 * MICROBATCHES  # 1,280 bytes a microbatch: enough to go straight to the next module


class AllCases(nn.Module):
    """``forward`` runs the case of a name."""

    def __init__(self) -> None:
        super().__init__()
        self.cases = nn.ModuleDict({make.__name__: make() for make in CASES})
        fill_with_whole_numbers(self.double())

    def forward(self, case: str, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.cases[case](x, tokens)


def belongs(name: str, case: str) -> bool:
    """True if the parameter of that name is the case's."""
    return name.startswith(f"cases.{case}.")


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, broken):
        ctx.broken = broken
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.broken:
            raise ArithmeticError("this backward fails on purpose")
        return gradient, None


class Breakable(nn.Module):
    """Fails in its backward while it is broken; calls ``inner`` if it has one."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.inner = inner
        self.broken = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = Fails.apply(x * self.weight, self.broken)
        return y if self.inner is None else self.inner(y) + x


class Fragile(nn.Module):
    """A chain over three partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = Breakable(on(1, Breakable(on(2, Breakable()))))
        fill_with_whole_numbers(self.double())

    def forward(self, _case: str, x: torch.Tensor, _tokens: torch.Tensor) -> torch.Tensor:
        return self.chain(x)


BREAKABLE = ["chain", "chain.inner", "chain.inner.inner"]


# --- Values, and one process ---


def fill_with_whole_numbers(module: nn.Module) -> None:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            # A zero in a vector would hide what becomes of that column.
            signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            whole = torch.randint(-1, 2, parameter.shape, generator=generator)
            parameter.copy_(signs if parameter.dim() == 1 else whole)


def batch(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    dice = random.Random(8)
    x = torch.tensor([[dice.randint(-1, 1) for _ in range(WIDTH)] for _ in range(rows)])
    tokens = torch.tensor([dice.randrange(4) for _ in range(rows)], dtype=torch.int64)
    return x.reshape(rows, WIDTH).double(), tokens


def train_alone(
    module: nn.Module, case: str, rows: int
) -> tuple[list[float], dict[str, torch.Tensor | None]]:
    """Losses by microbatch, and gradients by parameter, as one process has them."""
    losses = []
    for x, tokens in zip(*(tensor.chunk(MICROBATCHES) for tensor in batch(rows)), strict=True):
        loss = module(case, x, tokens).sum()
        (loss / MICROBATCHES).backward()
        losses.append(loss.item())
    return losses, {name: parameter.grad for name, parameter in module.named_parameters()}
