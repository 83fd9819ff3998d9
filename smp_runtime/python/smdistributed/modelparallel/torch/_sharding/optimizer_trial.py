# SPDX-License-Identifier: Apache-2.0
"""Copies of an optimizer that step small parameters, to see what its updates depend on."""

from __future__ import annotations

import copy
import itertools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

_STEPS = 30  # past those at which preconditioning begins
_GROUPS = 6  # groups that are tried, and shapes of each
_RATE = 0.01  # in place of one of 0, with which a warm-up begins

#: Place of a parameter among the elements of its group, and its shape.
_Place = tuple[int, tuple[int, ...]]
#: Parameters that one rank has, by group.
_Rank = list[list[_Place]]


class OptimizerTrial:
    """Small parameters in place of those of ``optimizer``, in groups of the same settings, and 30
    gradients for them. The optimizer, its parameters and torch's generators stay as they are."""

    def __init__(self, optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> None:
        self._optimizer = optimizer
        self._close = 1e-8 if dtype is torch.float64 else 1e-4  # share of the largest value
        self._groups = [group for group in optimizer.param_groups if group["params"]][:_GROUPS]
        self._whole: _Rank = [_places(_small_shapes(group["params"])) for group in self._groups]
        sizes = [sum(math.prod(shape) for _, shape in places) for places in self._whole]
        drawn = torch.Generator().manual_seed(0)
        device = self._groups[0]["params"][0].device if self._groups else torch.device("cpu")
        device = torch.device("cpu") if device.type == "meta" else device

        def draw(size: int, scale: float = 1.0) -> torch.Tensor:
            value = scale * torch.randn(size, generator=drawn, dtype=torch.float64)
            return value.to(device, dtype)

        self._values = [draw(size) for size in sizes]
        # Gradients of different sizes, for what depends on norms only above or below some limit.
        self._gradients = [[draw(size, 10.0 ** (step % 5 - 2)) for size in sizes]
                           for step in range(_STEPS)]  # fmt: skip
        self._expected: list[torch.Tensor] | None = None

    def steps(self) -> bool:
        """True if a copy can step, and changes parameters, to numbers."""
        self._expected = self._outcome([self._whole])
        if self._expected is None:
            return False
        pairs = list(zip(self._expected, self._values, strict=True))
        return bool(pairs) and all(
            bool(after.isfinite().all()) and not torch.equal(after, before)
            for after, before in pairs
        )

    def each_alone(self) -> list[_Rank]:
        """Every parameter on a rank of its own."""
        return [
            [[place] if own == number else [] for own in range(len(self._whole))]
            for number, places in enumerate(self._whole)
            for place in places
        ]

    def pieces(self) -> list[_Rank]:
        """The elements of each group end to end, over two ranks, as shards have them."""
        sizes = [value.numel() for value in self._values]
        cuts = [size // 3 + 1 for size in sizes]
        first: list[list[_Place]] = [
            [(0, (min(cut, size),))] for cut, size in zip(cuts, sizes, strict=True)
        ]
        second: list[list[_Place]] = [[(cut, (size - cut,))] if cut < size else []
                  for cut, size in zip(cuts, sizes, strict=True)]  # fmt: skip
        return [first, second]

    def agrees(self, ranks: Iterable[_Rank]) -> bool:
        """True if the updates are the same where ``ranks`` have the parameters."""
        got = self._outcome(ranks)
        if got is None or self._expected is None:
            return False
        return all(
            torch.allclose(one, other, rtol=0.0, atol=self._close * float(other.abs().max()))
            for one, other in zip(got, self._expected, strict=True)
        )

    def _outcome(self, ranks: Iterable[_Rank]) -> list[torch.Tensor] | None:
        """The values of each group after all steps; None where a copy raises."""
        result = [torch.full_like(value, math.nan) for value in self._values]
        with torch.random.fork_rng(devices=[]):
            for rank in ranks:
                try:
                    self._train(rank, result)
                except Exception:
                    return None
        return result

    def _train(self, rank: _Rank, result: Sequence[torch.Tensor]) -> None:
        held = [
            [nn.Parameter(_at(value, place).clone()) for place in places]
            for value, places in zip(self._values, rank, strict=True)
        ]
        optimizer = _copy_of(self._optimizer, self._groups, held)
        if callable(getattr(optimizer, "train", None)):  # a schedule-free optimizer
            optimizer.train()
        for gradients in self._gradients:
            for gradient, places, own in zip(gradients, rank, held, strict=True):
                for place, parameter in zip(places, own, strict=True):
                    parameter.grad = _at(gradient, place).clone()
            optimizer.step()
        for value, places, own in zip(result, rank, held, strict=True):
            for place, parameter in zip(places, own, strict=True):
                _at(value, place).copy_(parameter.detach())


def _at(flat: torch.Tensor, place: _Place) -> torch.Tensor:
    start, shape = place
    return flat.narrow(0, start, math.prod(shape)).view(shape)


def _small_shapes(parameters: Sequence[torch.Tensor]) -> list[tuple[int, ...]]:
    """Shapes of two parameters of each number of dimensions, if there are as many: an update that
    looks at other parameters needs others.

    >>> _small_shapes([torch.ones(64, 3), torch.ones(9), torch.ones(2), torch.ones(1)])
    [(6, 3), (6,), (2,)]
    """
    kept: dict[int, list[tuple[int, ...]]] = {}
    for parameter in parameters:
        alike = kept.setdefault(parameter.dim(), [])
        if len(alike) < 2 and parameter.numel() > 0:
            longest = 6 if parameter.dim() < 3 else 3
            alike.append(tuple(min(size, longest) for size in parameter.shape))
    return list(itertools.chain(*kept.values()))[:_GROUPS]


def _places(shapes: Iterable[tuple[int, ...]]) -> list[_Place]:
    """
    >>> _places([(2, 3), (4,)])
    [(0, (2, 3)), (6, (4,))]
    """
    places, start = [], 0
    for shape in shapes:
        places.append((start, shape))
        start += math.prod(shape)
    return places


def _copy_of(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[dict[str, Any]],
    parameters: Sequence[list[nn.Parameter]],
) -> Any:
    """One of the same class and settings over other parameters, without hooks, and with no state
    but what its class makes at once."""
    # Attributes may hold parameters, too, which are not to be copied.
    replacement = nn.Parameter(torch.zeros(1))
    memo: dict[int, Any] = {id(p): replacement for group in optimizer.param_groups
                            for p in group["params"]}  # fmt: skip
    memo[id(optimizer)] = made = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name in ("param_groups", "state", "step"):  # a scheduler puts a step of its own there
            continue
        hooks = name.endswith("_hooks") and isinstance(value, OrderedDict)
        made.__dict__[name] = OrderedDict() if hooks else copy.deepcopy(value, memo)
    made.__dict__["state"] = defaultdict(dict)
    made.__dict__["param_groups"] = [
        {**copy.deepcopy({k: v for k, v in group.items() if k != "params"}, memo), "params": own}
        for group, own in zip(groups, parameters, strict=True)
    ]
    for group, given in zip(made.param_groups, groups, strict=True):
        for parameter in group["params"]:
            if early := _early_state(optimizer, given["params"][0], parameter):
                made.state[parameter] = early
        if isinstance(group.get("lr"), (int, float)) and not group["lr"]:
            group["lr"] = _RATE
    return made


def _early_state(
    optimizer: torch.optim.Optimizer, model: torch.Tensor, parameter: torch.Tensor
) -> dict[str, Any]:
    """State that the class makes for a parameter before any step: numbers, and uniform tensors."""
    return {
        key: torch.full_like(parameter, float(value.flatten()[0]))
        if isinstance(value, torch.Tensor) and value.shape == model.shape
        else copy.deepcopy(value)
        for key, value in optimizer.state.get(model, {}).items()
    }
