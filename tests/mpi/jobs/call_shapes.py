# SPDX-License-Identifier: Apache-2.0
"""Every shape of call between partitions that decides how often a backward runs, each in a small
model of whole numbers: all orders of additions give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

WIDTH = 4


def on(partition: int, module: nn.Module) -> nn.Module:
    """Notes where the module is to be, counted modulo the number of partitions."""
    module.wanted_partition = partition
    return module


def linear(partition: int) -> nn.Module:
    return on(partition, nn.Linear(WIDTH, WIDTH))


class Computes(nn.Module):
    """``how(weight, *arguments)``."""

    def __init__(self, how: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.how = how

    def forward(self, *arguments: Any) -> Any:
        return self.how(self.weight, *arguments)


def far(how: Callable[..., Any]) -> nn.Module:
    return on(1, Computes(how))


def another(how: Callable[..., Any]) -> nn.Module:
    return on(2, Computes(how))


class Case(nn.Module):
    """``run(self, x, tokens)`` over the modules given, of which ``near`` is the caller's own."""

    def __init__(self, run: Callable[..., torch.Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.run = run
        self.near = nn.Linear(WIDTH, WIDTH)
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.run(self, x, tokens)


# --- What becomes of outputs ---


def unused_outputs() -> Case:
    def run(case, x, _):
        found = case.several(case.near(x))
        case.lost(found["unused"])  # differentiable, and nobody uses what it returns
        return found["used"]

    return Case(
        run,
        several=far(lambda w, x: {"used": x * w, "unused": x + w, "count": 3, "mask": x > 0}),
        lost=linear(2),
    )


def output_used_twice() -> Case:
    def run(case, x, _):
        once = case.first(case.near(x))
        return case.second(once) + case.third(once) + once * 2

    return Case(run, first=linear(1), second=linear(2), third=linear(1))


def no_output() -> Case:
    def run(case, x, _):
        y = case.near(x)
        assert case.looks_on(y) is None
        return y

    return Case(run, looks_on=far(lambda *_: None))


def argument_returned() -> Case:
    def run(case, x, _):
        assert not case.passes(x).requires_grad
        y = case.near(x)
        same = case.passes(y)
        first, second = case.twice(same)
        assert first is second
        return case.beside(first)[0] + y * 2 + same

    return Case(
        run,
        passes=on(1, nn.Identity()),
        twice=far(lambda _, x: (x, x)),
        beside=another(lambda w, x: (x, x * w)),
    )


def gradient_stopped() -> Case:
    def run(case, x, _):
        y = case.near(x)
        return y + Stops.apply(case.layer(y))

    return Case(run, layer=linear(1))


class Stops(torch.autograd.Function):
    """Is reached by the backward, and lets nothing pass."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


# --- What goes in ---


def argument_without_gradient() -> Case:
    return Case(lambda case, x, _: case.second(case.first(x)), first=linear(1), second=linear(2))


def sequential_without_gradient() -> Case:
    layers = nn.Sequential(linear(1), linear(2), on(1, nn.ReLU()), linear(0), linear(1))
    return Case(lambda case, x, _: case.layers(x), layers=layers)


def no_tensor_argument() -> Case:
    return Case(lambda case, x, _: x + case.makes(3, "rows"), makes=far(lambda w, n, _: w * n))


def argument_ignored() -> Case:
    def run(case, x, _):
        return x + case.ignores(case.near(x))  # near gets no gradient, not one of zeros

    return Case(run, ignores=far(lambda w, _: w * 2))


def argument_given_twice() -> Case:
    def run(case, x, _):
        y = case.near(x)
        return case.multiplies(y, y) + case.multiplies(y, x)

    return Case(run, multiplies=far(lambda w, a, b: a * b * w))


def integer_arguments() -> Case:
    def run(case, x, tokens):
        masked, following = case.masks(case.embed(tokens), tokens > 1)
        assert following.dtype == torch.int64 and not following.requires_grad
        return masked + case.embed(following)

    return Case(
        run,
        embed=on(1, nn.Embedding(4, WIDTH)),
        masks=another(lambda w, x, m: (torch.where(m[:, None], x * w, 0), m.long())),
    )


def parameter_as_argument() -> Case:
    def run(case, x, _):
        y = case.near(x)
        # A parameter of the module's own partition goes by name, one of the caller's as a tensor.
        return case.takes(y, case.takes.weight) + case.takes(y, case.near.bias)

    return Case(run, takes=far(lambda w, x, parameter: x * w + parameter))


# --- Where gradients end ---


def detached_inside() -> Case:
    def run(case, x, _):
        y = case.squares(case.near(x))
        return case.layer(y.detach()) + y

    return Case(run, squares=far(lambda w, x: (x * w) * (x * w).detach()), layer=linear(2))


def region_without_gradient() -> Case:
    def partly(w, x):
        with torch.no_grad():
            scale = (x * w).sign()
        return x * w * scale

    def run(case, x, _):
        y = case.near(x)
        with torch.no_grad():
            shift = case.layer(y)
        assert not shift.requires_grad
        return case.partly(case.layer(y) + shift)

    return Case(run, layer=linear(1), partly=another(partly))


# --- Who calls ---


class Returning(nn.Module):
    """Calls its partner, which calls it back, until ``depth`` is used up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.partner: tuple[nn.Module, ...] = ()  # hidden: a module is not part of its own part

    def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        y = self.layer(x)
        return self.partner[0](y, depth - 1) + x if depth else y


def recursion() -> Case:
    ping, pong = on(0, Returning()), on(1, Returning())
    ping.partner, pong.partner = (pong,), (ping,)
    return Case(lambda case, x, _: case.ping(x, 3), ping=ping, pong=pong)


def some_microbatches() -> Case:
    def run(case, x, _):
        y = case.near(x)
        return case.first(y) if x.sum() > 0 else y + case.second(case.second(y))

    return Case(run, first=linear(1), second=linear(2))


CASES = [
    unused_outputs,
    output_used_twice,
    no_output,
    argument_returned,
    gradient_stopped,
    argument_without_gradient,
    sequential_without_gradient,
    no_tensor_argument,
    argument_ignored,
    argument_given_twice,
    integer_arguments,
    parameter_as_argument,
    detached_inside,
    region_without_gradient,
    recursion,
    some_microbatches,
]
NAMES = [make.__name__ for make in CASES]
