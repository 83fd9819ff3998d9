# SPDX-License-Identifier: Apache-2.0
"""All optimizers of a job: what they share, and which of them is over which parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.ports import Masters, Model, Optimizer, Sharded


class JobOptimizers:
    """Optimizers that ``smp.DistributedOptimizer`` wrapped, in that order, over disjoint
    parameters: a wrapper over parameters of an earlier one takes its place.

    Where there are masters they step one store: gradients are measured, unscaled and clipped once
    for all of them, and one loss scale hears of one update.
    """

    def __init__(self) -> None:
        self._all: list[Optimizer] = []
        self._replaced: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._steps: _runtime.MixedPrecisionSteps | None = None

    def __iter__(self) -> Iterator[Optimizer]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def last(self) -> Optimizer | None:
        return self._all[-1] if self._all else None

    def wrapper_of(self, optimizer: torch.optim.Optimizer) -> Optimizer | None:
        """Wrapper of ``optimizer``, also if another took its place."""
        everyone = (*self._all, *self._replaced)
        return next((one for one in everyone if one.optimizer is optimizer), None)

    def beside(self, given: set[torch.Tensor]) -> list[Optimizer]:
        """Wrappers that stay if one over the parameters ``given`` comes."""
        return [one for one in self._all if given.isdisjoint(one.states.given_parameters())]

    def add(self, optimizer: Optimizer) -> None:
        """Adds ``optimizer``, in place of the wrappers over any of its parameters."""
        kept = self.beside(set(optimizer.states.given_parameters()))
        replaced = [one for one in self._all if one not in kept]
        self._all = [*kept, optimizer]
        if replaced or self._steps is None:
            self._renew_steps()
        elif optimizer.masters is not None:
            self._steps.add(optimizer.masters.core)
        for one in replaced:
            self._replaced.add(one)
            one.give_way(optimizer)

    def scaler_for(self, asked: Any, others: list[Optimizer]) -> _runtime.LossScaler | None:
        """The loss scale that ``others`` have; None without any. A model has one: raises
        SMPValidationError if theirs was asked for in other words than ``asked``."""
        if not others:
            return None
        if others[0].scale_arguments != asked:
            raise SMPValidationError(
                f"smp.DistributedOptimizer got a loss scale {_said(asked)}, and the optimizer "
                f"before has one {_said(others[0].scale_arguments)}; the loss of a model has one "
                "scale: give all its optimizers the same arguments"
            )
        return others[0].loss_scaler

    def settle(self) -> None:
        """The partition was made; see ``DistributedOptimizer.settle``."""
        for optimizer in self._all:
            optimizer.settle()
        self._renew_steps()

    def detach(self) -> None:
        """The session has ended."""
        self._steps = None
        for optimizer in (*self._all, *self._replaced):
            optimizer.detach()

    # --- Where there are masters ---

    @property
    def steps(self) -> _runtime.MixedPrecisionSteps | None:
        """Steps of all masters together; None without masters."""
        return self._steps

    @property
    def _masters(self) -> list[Masters]:
        return [one.masters for one in self._all if one.masters is not None]

    def _renew_steps(self) -> None:
        """Makes ``steps`` anew, for other optimizers than so far, or masters of another store."""
        masters = self._masters
        if not masters:
            self._steps = None
            return
        scaler = self._all[0].loss_scaler
        self._steps = masters[0].make_steps(scaler)
        for one in masters:
            self._steps.add(one.core)

    def keep_parameters_whole(self, model: Model, asking: Optimizer) -> Sharded:
        """``model.keep_parameters_whole``, for ``asking``; optimizers that have masters take
        theirs, with their state, over to those of whole parameters. Collective."""
        kept = self.beside(set(asking.states.given_parameters()))
        moved = [(one, one.states.whole()) for one in kept if one.masters is not None]
        sharded = model.keep_parameters_whole()
        for one, saved in moved:
            one.move_masters(sharded, saved)
        self._renew_steps()
        return sharded

    def have_master(self, parameter: torch.Tensor) -> bool:
        """True if ``parameter`` is a master of one of the optimizers, not a model's parameter."""
        return any(parameter in one.leaves for one in self._masters)

    def has_gradient(self, store: _runtime.ParameterStore, parameter: int) -> bool:
        """True if the masters hold a gradient of the parameter of this number."""
        if not (store.has_gradients or store.is_accumulating):
            return False
        owners = (one for one in self._masters if parameter in one.group_of)
        return not any(one.is_cleared for one in owners)

    def begin_accumulation(self) -> None:
        """A step is about to add to the gradients that the masters still have; the model calls
        it."""
        if self._steps is not None:
            self._steps.begin_accumulation()

    def begin(self) -> None:
        """The masters get the gradients that a step has averaged; the model calls it."""
        for one in self._masters:
            one.is_cleared = False
        if self._steps is not None:
            self._steps.begin()

    def clear_gradients(self, of: Masters | None = None) -> None:
        """Clears the gradients of one optimizer, or all. After an overflow, which leaves no
        gradient of use, all."""
        masters = self._masters
        for one in masters:
            one.is_cleared = one.is_cleared or of is None or one is of
        overflow = self._steps is not None and self._steps.overflow
        if of is None or overflow or all(one.is_cleared for one in masters):
            for one in masters:
                one.is_cleared = True
            if masters:
                masters[0].sharded.store.zero_gradients()
            if self._steps is not None:
                self._steps.begin()
        else:
            of.core.clear_gradients()


def _said(asked: tuple[float, bool, dict[str, Any]]) -> str:
    static, dynamic, given = asked
    arguments = "".join(f", {name}={value}" for name, value in given.items())
    return f"of dynamic_loss_scale={dynamic}, static_loss_scale={static}{arguments}"
