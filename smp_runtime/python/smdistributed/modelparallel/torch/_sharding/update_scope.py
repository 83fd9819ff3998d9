# SPDX-License-Identifier: Apache-2.0
"""Scope of an optimizer's update of one element, and what a job has for it to look at.

The scope is known by construction, said by the optimizer or the script, or measured by copies of
the optimizer that step small parameters; where it is none of these, the optimizer is refused
wherever it would matter.
"""

from __future__ import annotations

import copy
import enum
import itertools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.modelparallel.torch.optimizers import FusedWithNorms


class UpdateScope(enum.IntEnum):
    """Values on which the update of an element depends, beside numbers of its group."""

    ELEMENT = 1  # its own gradients and state: any piece can be stepped anywhere
    PARAMETER = 2  # its whole parameter
    MODEL = 3  # other parameters, too

    @classmethod
    def named(cls, name: str) -> UpdateScope:
        """Raises SMPValidationError for a name that is none."""
        try:
            return cls[name.upper()]
        except (KeyError, AttributeError):
            raise SMPValidationError(
                f"smp.DistributedOptimizer got update_scope={name!r}; it is 'element', "
                "'parameter' or 'model'"
            ) from None


#: By construction; a subclass may do anything, and is measured.
_KNOWN: dict[type[torch.optim.Optimizer], UpdateScope] = {
    **dict.fromkeys(
        (
            *(torch.optim.ASGD, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam),
            *(torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam),
            *(torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD, torch.optim.SparseAdam),
        ),
        UpdateScope.ELEMENT,
    ),
    **dict.fromkeys((torch.optim.Adafactor, torch.optim.Muon), UpdateScope.PARAMETER),
    torch.optim.LBFGS: UpdateScope.MODEL,
}


def check_scope(optimizer: torch.optim.Optimizer, declared: str | None) -> UpdateScope | None:
    """Raises SMPUnsupportedError where a rank has less than ``optimizer`` looks at, or might.

    Returns its scope; None where nothing depends on it, so that it was not looked for.
    """
    if declared is None:
        declared = getattr(optimizer, "update_scope", None)
    said = None if declared is None else UpdateScope.named(declared)
    available = _available(optimizer)
    if said is None and available is UpdateScope.MODEL:
        return None
    if isinstance(optimizer, FusedWithNorms):
        if ranks.tp_size() == 1 or shard_plan() is None:
            return UpdateScope.ELEMENT  # and the norms of whole parameters, which it is given
        # Norms of masters are added up over shards, not over slices beside them.
        raise SMPUnsupportedError(_refusal(optimizer, UpdateScope.PARAMETER, UpdateScope.ELEMENT))
    scope = said or _KNOWN.get(type(optimizer)) or measured_scope(optimizer)
    if scope is None or scope > available:
        raise SMPUnsupportedError(_refusal(optimizer, scope, available))
    return scope


def _available(optimizer: torch.optim.Optimizer) -> UpdateScope:
    """The most that the optimizer of one rank has at once, whatever it is."""
    how, tensor_ranks = shard_plan(), ranks.tp_size() > 1
    cut = how is not None and how.cuts_parameters and (how.on_demand or tensor_ranks)
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    if cut or (tensor_ranks and any(distribution_axis(p) is not None for p in parameters)):
        return UpdateScope.ELEMENT
    shared = how is not None and max(how.degree, how.own_degree) > 1
    return UpdateScope.PARAMETER if shared or ranks.mp_size() > 1 else UpdateScope.MODEL


def _refusal(
    optimizer: torch.optim.Optimizer, scope: UpdateScope | None, available: UpdateScope
) -> str:
    kind = type(optimizer).__name__
    has = (
        "ranks have pieces of parameters"
        if available is UpdateScope.ELEMENT
        else "ranks have some of the parameters each"
    )
    needs = {
        None: "of which it is not known what its update of an element depends on: a copy of it "
        "could not step small parameters",
        UpdateScope.PARAMETER: "whose update needs whole parameters",
        UpdateScope.MODEL: "whose update needs all parameters at once",
    }[scope]
    mend = (
        "shard_optimizer_state without tensor parallelism, which keeps parameters whole"
        if available is UpdateScope.ELEMENT and scope is not UpdateScope.MODEL
        else "neither sharding nor model parallelism"
    )
    return (
        f"smp.DistributedOptimizer got {kind}, {needs}; here {has} (sharded data parallelism, "
        "optimizer-state sharding, tensor parallelism or a pipeline). Use an optimizer that "
        f"updates each element by itself, such as AdamW, or {mend}. If it does update each "
        "element by itself, or each parameter, say so: smp.DistributedOptimizer(optimizer, "
        "update_scope='element'), or 'parameter'"
    )


def measured_scope(optimizer: torch.optim.Optimizer) -> UpdateScope | None:
    """Scope that copies of ``optimizer`` show that step a few small parameters as they are, each by
    itself, and in pieces; None where they cannot step, or nothing changes.

    >>> weight = torch.nn.Parameter(torch.ones(3, 2))
    >>> measured_scope(torch.optim.SGD([weight], lr=0.1, momentum=0.9)).name
    'ELEMENT'
    >>> measured_scope(torch.optim.Adafactor([weight])).name
    'PARAMETER'
    """
    for dtype in (torch.float64, torch.float32):  # some kernels are for one of them alone
        trial = OptimizerTrial(optimizer, dtype)
        if trial.steps():
            if not trial.agrees(trial.each_alone()):
                return UpdateScope.MODEL
            return UpdateScope.ELEMENT if trial.agrees(trial.pieces()) else UpdateScope.PARAMETER
    return None


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
