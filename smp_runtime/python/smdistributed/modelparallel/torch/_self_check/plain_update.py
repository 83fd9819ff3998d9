# SPDX-License-Identifier: Apache-2.0
"""An update of an optimizer over whole parameters, as one process would make it.

It begins with what the job has: values, gradients, state and settings just before. So it does not
matter what a script did to gradients since the step, such as clipping them, and nothing adds up.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._self_check.module_watch import undisturbed
from smdistributed.modelparallel.torch._self_check.whole_states import WholeState
from smdistributed.modelparallel.torch._slices.whole_norms import (
    Tensors,
    WholeNorms,
    grad_of,
    with_grad,
)
from smdistributed.modelparallel.torch.optimizers import FusedAdam, FusedWithNorms

#: Attributes of an optimizer that the copy has of its own, or not: patches of schedulers and hooks.
_NOT_COPIED = ("state", "param_groups", "step", "norms", "zero_grad")


class CannotRepeatError(RuntimeError):
    """The update cannot be made once more beside the job; the text says why."""


def plain_update(optimizer: torch.optim.Optimizer, whole: WholeState) -> dict[int, torch.Tensor]:
    """The values after the update, by number; those of ``whole`` stay as they are. Raises
    CannotRepeatError."""
    parameters = {
        number: nn.Parameter(value.clone(), requires_grad=value.is_floating_point())
        for number, value in whole.values.items()
    }
    twin = _twin(optimizer, whole, parameters)
    for number, gradient in whole.gradients.items():
        if number in parameters:
            parameters[number].grad = gradient.reshape(parameters[number].shape)
    with undisturbed(), torch.no_grad():
        before = torch.get_rng_state()
        _plain_step(twin)
        if not torch.equal(before, torch.get_rng_state()):
            raise CannotRepeatError(f"{type(optimizer).__name__} draws random numbers")
    return {number: parameter.detach() for number, parameter in parameters.items()}


def _twin(
    optimizer: torch.optim.Optimizer, whole: WholeState, parameters: dict[int, nn.Parameter]
) -> torch.optim.Optimizer:
    """An optimizer of the same class over the copies."""
    kind = type(optimizer)
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise CannotRepeatError(f"hooks of {kind.__name__}'s step may change what it updates")
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    twin: torch.optim.Optimizer = kind.__new__(kind)
    for name, value in vars(optimizer).items():
        if name in _NOT_COPIED:
            continue
        if name.startswith("_optimizer_") and isinstance(value, OrderedDict):
            setattr(twin, name, OrderedDict())  # hooks, which are for the job
            continue
        if _reaches(value, own):
            raise CannotRepeatError(
                f"{kind.__name__}.{name} holds parameters or an optimizer besides param_groups"
            )
        try:
            setattr(twin, name, copy.deepcopy(value))
        except Exception as error:
            raise CannotRepeatError(
                f"{kind.__name__}.{name} cannot be copied: {type(error).__name__}: {error}"
            ) from error
    if isinstance(twin, FusedAdam):
        twin.gradient_factor = 1.0
    if isinstance(twin, FusedWithNorms):
        twin.norms = _NormsHere()
    twin.param_groups = [
        {**group, "params": [parameters[n] for n in group["params"] if n in parameters]}
        for group in whole.groups
    ]
    twin.state = defaultdict(dict)
    for number, held in whole.states.items():
        if number in parameters and held:
            twin.state[parameters[number]] = dict(held)
    return twin


def _reaches(value: Any, own: set[int]) -> bool:
    """True if an attribute is, or a container in it has, another optimizer or parameters."""
    if isinstance(value, torch.optim.Optimizer) or id(value) in own:
        return True
    if isinstance(value, dict):
        return any(_reaches(item, own) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple, set)):
        return any(_reaches(item, own) for item in value)
    return False


def _plain_step(optimizer: torch.optim.Optimizer) -> None:
    """Without the hooks of all optimizers, among which are the library's."""
    step: Any = type(optimizer).step
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    step(optimizer)


class _NormsHere(WholeNorms):
    """Nothing is anywhere else."""

    def of(self, parameters: Tensors, values: Tensors, norm_type: float = 2.0) -> Tensors:
        return list(torch._foreach_norm(values, norm_type)) if values else []

    def of_gradients(self, parameters: Tensors) -> float:
        grads = [grad_of(p).double() for p in with_grad(parameters)]
        if not grads:
            return 0.0
        return float(torch.stack(torch._foreach_norm(grads)).square().sum().sqrt())
