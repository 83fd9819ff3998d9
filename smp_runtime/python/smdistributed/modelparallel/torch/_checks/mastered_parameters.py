# SPDX-License-Identifier: Apache-2.0
"""Parameters of the model in a job that steps 32-bit masters: their ``grad`` and ``data``, and
those without a gradient.

``parameter.grad`` would be None between a step and the update, and what a script does to it, such
as to scale or to measure it, would be lost without a word. ``parameter.data`` is a tensor of which
PyTorch does not count the changes, which the next update would overwrite. And who assigns to
``data`` of a master would give it memory of which the store knows nothing. Masters are flat: the
part of a parameter without a gradient in an update is zeros, where PyTorch leaves the parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._checks.parameter_names import listed
from smdistributed.modelparallel.torch._sharding.precision import kind_of_state
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from smdistributed.modelparallel.torch.ports import Sharded
from smdistributed.modelparallel.torch.state_mod import state


class MasteredParameters:
    """From ``open`` to ``close`` an access to ``grad`` of a parameter of ``sharded()`` whose
    gradient the masters have raises SMPStepError; changes of its ``data``, and of a master's, are
    counted, and what a script assigns to a master's ``data`` is copied into it."""

    def __init__(self, sharded: Callable[[], Sharded | None]) -> None:
        self._sharded = sharded

    def open(self) -> None:
        grad: Any = torch.Tensor.grad
        data: Any = torch.Tensor.data

        def get_grad(parameter: nn.Parameter) -> torch.Tensor | None:
            gradient: torch.Tensor | None = grad.__get__(parameter)
            if gradient is None:
                self._check(parameter, "read")
            return gradient

        def set_grad(parameter: nn.Parameter, gradient: torch.Tensor | None) -> None:
            self._check(parameter, "set")
            grad.__set__(parameter, gradient)

        def get_data(parameter: nn.Parameter) -> torch.Tensor:
            is_ours = self._number_of(parameter) is not None or self._is_master(parameter)
            return parameter.detach() if is_ours else data.__get__(parameter)

        def set_data(parameter: nn.Parameter, value: torch.Tensor) -> None:
            if not self._is_master(parameter):
                data.__set__(parameter, value)
            elif parameter.shape == value.shape:
                parameter.detach().copy_(value)
            else:
                raise SMPStepError(
                    f"a tensor of shape {tuple(value.shape)} was assigned to data of a 32-bit "
                    f"master of shape {tuple(parameter.shape)}; with {kind_of_state()} what "
                    "optimizer.param_groups holds are flat parts of the model's parameters"
                )

        parameters: Any = nn.Parameter
        parameters.grad = property(get_grad, set_grad, lambda parameter: set_grad(parameter, None))
        parameters.data = property(get_data, set_data)

    def close(self) -> None:
        for name in {"grad", "data"} & vars(nn.Parameter).keys():
            delattr(nn.Parameter, name)

    def _number_of(self, parameter: nn.Parameter) -> int | None:
        sharded = self._sharded()
        return None if sharded is None else sharded.number_of.get(parameter)

    def _is_master(self, parameter: nn.Parameter) -> bool:
        return self._sharded() is not None and state.optimizers.have_master(parameter)

    def _check(self, parameter: nn.Parameter, what: str) -> None:
        sharded, number = self._sharded(), self._number_of(parameter)
        if sharded is None or number is None or not parameter.requires_grad:
            return
        if not state.optimizers.has_gradient(sharded.store, number):
            return
        raise SMPStepError(
            f"the gradient of parameter {sharded.names[number]} was {what}, and with "
            f"{kind_of_state()} gradients are those of 32-bit masters: change them as .grad of the "
            "parameters in optimizer.param_groups, of which each rank has a part, or call "
            "optimizer.clip_master_grads(max_norm), which returns their norm, or "
            "optimizer.zero_grad()"
        )


def check_published(sharded: Sharded | None) -> None:
    """Raises SMPStepError where modules do not have what the masters are."""
    if sharded is not None and not sharded.store.is_published:
        raise SMPStepError(
            "the 32-bit masters in the optimizer's groups were changed outside of its step(), "
            "and the model's parameters, which are copies of them, were not; call "
            "optimizer.publish_masters() on all ranks after such a change"
        )


class MissingGradients:
    """Finds parameters that had gradients in an earlier update of the job and have none now."""

    def __init__(self) -> None:
        self._had: set[int] = set()
        # Optimizers of which every parameter had a gradient once.
        self._complete: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def said_of(self, optimizer: torch.optim.Optimizer) -> str | None:
        """Warning, before ``optimizer`` steps masters, of parameters that had gradients in an
        earlier update and have none now."""
        wrapper = state.optimizers.wrapper_of(optimizer)
        masters = None if wrapper is None else wrapper.masters
        if masters is None or not masters.sharded.store.has_gradients:
            return None
        sharded = masters.sharded
        missing = set(sharded.store.unreached())
        lost = sorted(missing & self._had & masters.group_of.keys())
        if optimizer not in self._complete:
            self._had |= masters.group_of.keys() - missing
            if self._had.issuperset(masters.group_of):
                self._complete.add(optimizer)
        if not lost:
            return None
        return (
            f"{listed([sharded.names[number] for number in lost])} had gradients before, and no "
            f"backward of this step came to them on this rank: with {kind_of_state()} the update "
            "takes zeros for them, so that momentum and weight decay change them still, where "
            "plain PyTorch leaves a parameter without a gradient as it is. Give them an optimizer "
            "of their own, and step it only behind steps that use them"
        )
