# SPDX-License-Identifier: Apache-2.0
"""Layers whose gradients somebody else looks at, or whose forward is not what their class says, and
their training in one process."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

WIDTH, ROWS, MICROBATCHES, STEPS = 4, 8, 2, 3


#: Not converted later, which would leave hooks of accumulators behind.
LIKE: dict[str, Any] = {"dtype": torch.float64}


class Odd(nn.Module):
    """A layer, in whose ``forward`` or around which something is odd."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH, **LIKE)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)

    def count(self, *_: Any) -> None:
        self.calls += 1


# --- Hooks ---


class HookOfParameter(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.fc.weight.register_hook(lambda gradient: 2 * gradient)


class HookBehindAccumulation(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.fc.weight.register_post_accumulate_grad_hook(self.count)


class HookOfSeveralParameters(Odd):
    def __init__(self) -> None:
        super().__init__()
        torch.autograd.graph.register_multi_grad_hook(list(self.fc.parameters()), self.count)


class HookOfAccumulator(Odd):
    """As reducers of other libraries have it."""

    def __init__(self) -> None:
        super().__init__()
        view = self.fc.weight.expand_as(self.fc.weight)
        self.accumulator = view.grad_fn.next_functions[0][0]
        self.accumulator.register_hook(self.count)


class HookOfOutput(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        y.register_hook(lambda gradient: 2 * gradient)
        return y


class GradientOfOutput(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        y.retain_grad()
        return y


class BackwardHook(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.fc.register_full_backward_hook(lambda _, inputs, __: (2 * inputs[0],))


class SavedTensorsElsewhere(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            return self.fc(x)


class WeightOfSavedTensorsElsewhere(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            return F.linear(x, self.fc.weight / self.fc.weight.norm())


# --- Gradients within the step ---


class PenaltyOfInput(Odd):
    """A double backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x).tanh()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + gradient.square()


class PenaltyOfWeight(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x).tanh()
        (gradient,) = torch.autograd.grad(y.sum(), self.fc.weight, create_graph=True)
        return y @ gradient


class GradientTaken(Odd):
    """For a number alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), self.fc.weight, retain_graph=True)
        return y / (1 + gradient.norm().item())


class OfEachSample(Odd):
    """By ``torch.func``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gradients = torch.func.vmap(torch.func.grad(lambda row: self.fc(row).tanh().sum()))(x)
        return self.fc(x) + gradients


# --- Forwards that are not what the class says ---


class Masked(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight * torch.ones_like(self.weight).tril(), self.bias)


class OwnForward(Odd):
    def __init__(self) -> None:
        super().__init__()
        self.fc = Masked(WIDTH, WIDTH, **LIKE)


class ForwardReplaced(Odd):
    def __init__(self) -> None:
        super().__init__()

        def forward(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
            return x @ layer.weight + (x * layer.bias).sum() * layer.weight.sum()

        self.fc.forward = types.MethodType(forward, self.fc)


class Symmetric(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.t()


class Parametrized(Odd):
    def __init__(self) -> None:
        super().__init__()
        parametrize.register_parametrization(self.fc, "weight", Symmetric())


class WeightNorm(Odd):
    def __init__(self) -> None:
        super().__init__()
        parametrizations.weight_norm(self.fc)


class OlderWeightNorm(Odd):
    """Sets the layer's weight, which is no parameter any more, before each forward."""

    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nn.utils.weight_norm(self.fc)


class WeightSwapped(Odd):
    """Calls the layer with another tensor in the place of its parameter."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.fc._parameters.pop("weight")
        self.fc.weight = weight.t() * 2
        y = self.fc(x)
        del self.fc.weight
        self.fc._parameters["weight"] = weight
        return y


class FunctionalCall(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {name: 2 * value for name, value in self.fc.named_parameters()}
        return torch.func.functional_call(self.fc, values, (x,))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


class WeightThroughOwnFunction(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, Doubled.apply(self.fc.weight), self.fc.bias)


class ChangedInPlace(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).mul_(2).relu_()


class UsedTwice(Odd):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.fc(x.detach()) + self.fc(self.fc(x))


class Frozen(Odd):
    """With a trained part of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.fc.requires_grad_(False)
        self.down = nn.Linear(WIDTH, 1, bias=False, **LIKE)
        self.up = nn.Linear(1, WIDTH, bias=False, **LIKE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) + self.up(self.down(x))


KINDS: dict[str, Callable[[], Odd]] = {kind.__name__: kind for kind in Odd.__subclasses__()}
#: Kinds that count how often somebody is told of a gradient: once a microbatch.
COUNTED = ("HookBehindAccumulation", "HookOfSeveralParameters", "HookOfAccumulator")


class AllKinds(nn.Module):
    """``forward`` runs a kind of layer twice: on each of two partitions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first = nn.Linear(WIDTH, WIDTH, **LIKE)
        self.kinds = nn.ModuleDict(
            {name: nn.ModuleList([kind(), kind()]) for name, kind in KINDS.items()}
        )

    def forward(self, kind: str, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for layer in self.kinds[kind]:
            y = layer(y)
        return y.tanh().sum()


def belongs(name: str, kind: str) -> bool:
    """True if the parameter of that name takes part in the kind's step."""
    return name.startswith(("first.", f"kinds.{kind}."))


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)


def gradients_here(model: nn.Module, kind: str) -> list[torch.Tensor]:
    """Of the first partition, as they are now."""
    layers = (model.first, model.kinds[kind][0])
    return [p.grad.clone() for layer in layers for p in layer.parameters()]


def look_alone(kind: str) -> list[list[torch.Tensor]]:
    """By microbatch: gradients_here() behind its backward."""
    model, found = AllKinds(), []
    for part in batch(0).chunk(MICROBATCHES):
        (model(kind, part) / MICROBATCHES).backward()
        found.append(gradients_here(model, kind))
    return found


def train_alone(kind: str) -> list[tuple[list[float], dict[str, torch.Tensor | None]]]:
    """By step: losses by microbatch, and gradients by parameter."""
    model = AllKinds()
    found = []
    for step in range(STEPS):
        model.zero_grad()
        losses = []
        for part in batch(step).chunk(MICROBATCHES):
            loss = model(kind, part)
            (loss / MICROBATCHES).backward()
            losses.append(loss.item())
        gradients = {name: p.grad for name, p in model.named_parameters() if belongs(name, kind)}
        found.append((losses, gradients))
    return found
