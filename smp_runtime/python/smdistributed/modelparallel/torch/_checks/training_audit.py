# SPDX-License-Identifier: Apache-2.0
"""Checks that gradients reach parameters by way of an optimizer, in the first updates of each.

Of every parameter two elements are looked at before and after an update, those with the largest and
the smallest gradient: where there is a gradient they change, if anything does.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from smdistributed.modelparallel.torch._checks.parameter_names import listed_by_module
from smdistributed.modelparallel.torch._ranks import log, ranks
from smdistributed.modelparallel.torch.ports import Masters, Model
from smdistributed.modelparallel.torch.state_mod import state

_UPDATES = 3
_PATIENCE = 6  # updates of others, after which an optimizer that has made none is named
_ROUNDING = 8.0  # units in the last place that an update has to be worth


@dataclass
class _Account:
    """One parameter's gradients and changes over the updates of its optimizer so far."""

    had_gradient: bool = False
    averaged: bool = True
    rate: float = 0.0  # the largest with which a gradient met the optimizer
    is_rounded: bool = False  # updates at its rate may be less than its type holds
    changed: bool = False


@dataclass
class _Sample:
    """Two elements of a parameter, or of a piece of its master."""

    name: str
    rate: float
    averaged: bool
    value: torch.Tensor
    indices: torch.Tensor
    before: torch.Tensor
    gradient: torch.Tensor


class TrainingAudit:
    """Audit of one model, called around each update of an optimizer over its parameters."""

    def __init__(self) -> None:
        self._updates: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = (
            weakref.WeakKeyDictionary()
        )
        self._accounts: dict[str, _Account] = {}
        self._samples: weakref.WeakKeyDictionary[torch.optim.Optimizer, list[_Sample]] = (
            weakref.WeakKeyDictionary()
        )
        self._waits = True

    def before_update(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` steps now."""
        if self._updates.get(optimizer, 0) < _UPDATES and not _found_overflow(optimizer):
            self._samples[optimizer] = list(_samples(model, optimizer))

    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Judges an update that was made. Collective over the shard group where there are masters,
        at the third."""
        made = self._updates.get(optimizer, 0) + 1
        samples = self._samples.pop(optimizer, None)
        if samples is None and made <= _UPDATES:
            return  # it was skipped
        self._updates[optimizer] = made
        self._judge(samples or [])
        if made == _UPDATES:
            self._report(optimizer)
        if made == _PATIENCE and self._waits:
            self._waits = False
            self._report_waiting(optimizer)

    def _account(self, name: str) -> _Account:
        return self._accounts.setdefault(name, _Account())

    def _judge(self, all_samples: list[_Sample]) -> None:
        """Takes the samples into account. The host waits once for each device."""
        for device in {one.value.device for one in all_samples}:
            samples = [one for one in all_samples if one.value.device == device]
            now = [_real(one.value.take(one.indices)) for one in samples]
            rows = torch.stack([
                torch.stack([after.ne(one.before).any().double(), _largest(one.gradient),
                             _largest(one.before)])
                for after, one in zip(now, samples, strict=True)
            ]).tolist()  # fmt: skip
            for one, (changed, gradient, value) in zip(samples, rows, strict=True):
                if gradient == 0:  # NaN counts
                    continue
                account = self._account(one.name)
                account.had_gradient = True
                account.averaged = account.averaged and one.averaged
                account.rate = max(account.rate, one.rate)
                account.changed = account.changed or bool(changed)
                least = one.rate * min(1.0, gradient)
                unit = torch.finfo(one.before.dtype).eps * value
                account.is_rounded = account.is_rounded or least < _ROUNDING * unit

    def _report(self, optimizer: torch.optim.Optimizer) -> None:
        kind = type(optimizer).__name__
        wrapper = state.optimizers.wrapper_of(optimizer)
        masters = None if wrapper is None else wrapper.masters
        parameters = _named(optimizer, masters)
        if masters is not None:
            self._share(masters)
        if ranks.tp_rank() != 0 or ranks.rdp_rank() != 0:
            return  # another rank says the same
        accounts = {name: self._account(name) for name in parameters}
        within = f"in the first {_UPDATES} updates"

        def those(text: str, names: list[str], *, is_odd: bool) -> None:
            if names:
                (log.warning_here if is_odd else log.info)(f"{listed_by_module(names)} {text}")

        unchanged = {n: a for n, a in accounts.items() if a.had_gradient and not a.changed}
        narrow = [n for n, a in unchanged.items()
                  if a.rate > 0 and parameters[n].itemsize <= 2]  # fmt: skip
        those(
            f"had gradients, and no optimizer changed them {within}: {kind} steps them in 16 bits, "
            "in which what its learning rate makes of them is rounded away. Keep them in 32 bits "
            "and set bf16 or fp16, which has 32-bit masters, or raise the learning rate",
            narrow,
            is_odd=True,
        )
        those(
            f"had gradients, and no optimizer changed them {within}: {kind} has them, with a "
            "learning rate above 0, and left them as they are. Look at what its step does with "
            "them",
            [n for n, a in unchanged.items()
             if a.rate > 0 and n not in narrow and not a.is_rounded],
            is_odd=True,
        )  # fmt: skip
        those(
            f"had gradients, and no optimizer changed them {within}: {kind} has them with a "
            "learning rate of 0",
            [n for n, a in unchanged.items() if a.rate == 0],
            is_odd=False,
        )
        those(
            f"had gradients {within} that no step had averaged over the replicas: unless they are "
            "the same on all ranks, replicas drift apart. Compute them from a loss, in the "
            "function decorated with smp.step",
            [n for n, a in accounts.items() if a.had_gradient and not a.averaged],
            is_odd=True,
        )
        those(
            f"had no gradient {within}, or zeros: the loss does not depend on them. Freeze them "
            "with requires_grad_(False) if that is meant",
            [n for n, a in accounts.items() if not a.had_gradient],
            is_odd=False,
        )

    def _share(self, masters: Masters) -> None:
        """Shares what ranks know of their pieces of parameters. Collective over the shard group."""
        names = masters.sharded.names
        for field in ("had_gradient", "rate", "is_rounded", "changed"):
            own = [float(getattr(self._account(name), field)) for name in names]
            shared = masters.core.norms_by_number(torch.tensor(own, dtype=torch.float64), math.inf)
            for name, value in zip(names, shared.tolist(), strict=True):
                setattr(self._account(name), field, value if field == "rate" else bool(value))

    def _report_waiting(self, stepped: torch.optim.Optimizer) -> None:
        for one in state.optimizers:
            if one.optimizer in self._updates:
                continue
            names = [name for name in one.states.parameter_names() if name]
            log.warning(
                f"{type(one.optimizer).__name__}, which smp.DistributedOptimizer got for "
                f"{listed_by_module(names)}, has made no update in the first {_PATIENCE} of "
                f"{type(stepped).__name__}: they stay as they are. Call step() of each optimizer"
            )


def _found_overflow(optimizer: torch.optim.Optimizer) -> bool:
    """True if torch's GradScaler lets a fused optimizer skip this update."""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and bool(found)


def _named(optimizer: torch.optim.Optimizer, masters: Masters | None) -> dict[str, torch.dtype]:
    """Types of the trained parameters of this rank's modules that it steps, by name."""
    model = state.model
    assert model is not None
    here = set(model.local_parameters())
    own = {p for group in optimizer.param_groups for p in group["params"]}
    if masters is not None:
        own = {p for group in masters.original_groups for p in group}
    wide = torch.float32 if masters is not None else None
    return {name: wide or p.dtype for name, p in model.named_parameters()
            if p in own and p in here and p.requires_grad}  # fmt: skip


def _samples(model: Model, optimizer: torch.optim.Optimizer) -> Iterator[_Sample]:
    wrapper = state.optimizers.wrapper_of(optimizer)
    masters = None if wrapper is None else wrapper.masters
    if masters is None:
        names = {parameter: name for name, parameter in model.named_parameters()}
        averaged = model.replicas.averaged
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in names and parameter.grad is not None:
                    is_averaged = averaged is None or parameter in averaged
                    yield from _sample(
                        names[parameter], group, parameter, parameter.grad, is_averaged
                    )
        return
    for run in masters.runs:
        grad = run.parameter.grad
        for piece in run.pieces if grad is not None else []:
            assert grad is not None
            yield from _sample(
                masters.sharded.names[piece.parameter],
                optimizer.param_groups[run.group],
                run.slice_of(piece, run.parameter.detach()),
                run.slice_of(piece, grad),
                averaged=True,
            )


def _sample(
    name: str, group: Mapping[str, Any], value: torch.Tensor, gradient: torch.Tensor, averaged: bool
) -> Iterator[_Sample]:
    """None where there is nothing to look at."""
    value, gradient = value.detach(), gradient.detach()
    rows: torch.Tensor | None = None
    if gradient.is_sparse:  # gradient of an embedding: the rows that were used
        gradient = gradient.coalesce()
        rows, gradient = gradient.indices(), gradient.values()
    if gradient.numel() == 0 or (rows is not None and len(rows) != 1):
        return
    sizes = gradient.abs() if gradient.is_complex() else gradient
    places = torch.stack([sizes.argmax(), sizes.argmin()])
    indices = places
    if rows is not None:
        width = gradient[0].numel()
        indices = rows[0][places // width] * width + places % width
    rate = group.get("lr", 1.0)
    yield _Sample(
        name, float(rate), averaged, value, indices, _real(value.take(indices)),
        _real(gradient.take(places)),
    )  # fmt: skip


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def _largest(values: torch.Tensor) -> torch.Tensor:
    return values.abs().max().double()
