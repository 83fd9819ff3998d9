# SPDX-License-Identifier: Apache-2.0
"""Parameters, gradients and state of an optimizer, whole, wherever ranks hold pieces of them.

Gradients and values travel as if they were state of the optimizer, so that whatever makes whole
state of the ranks' makes whole gradients, too. Collective as ``optimizer.state_dict()`` is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from smdistributed import _runtime
from smdistributed.modelparallel.torch._sharding.master_parameters import MasterParameters
from smdistributed.modelparallel.torch._state.optimizer_states import OptimizerStates
from smdistributed.modelparallel.torch.optimizers import FusedAdam
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state

_GRADIENT, _VALUE, _MASTERS = "_smp_gradient", "_smp_value", "_smp_masters"
_NO_SCALE = _runtime.LossScaler(dynamic=False, scale=1.0)


@dataclass
class WholeState:
    """State of all parameters that an optimizer was given, by their numbers in it."""

    names: list[str]
    values: dict[int, torch.Tensor]
    gradients: dict[int, torch.Tensor]
    states: dict[int, dict[str, Any]]
    groups: list[dict[str, Any]]
    """Settings of the groups, with the numbers of their parameters as ``params``."""


def states_of(optimizer: torch.optim.Optimizer) -> OptimizerStates:
    """States from which the whole state of ``optimizer``, maybe a wrapped one, is made."""
    wrapper = state.optimizers.wrapper_of(optimizer)
    if wrapper is not None:
        states: OptimizerStates = wrapper.states
        return states
    return OptimizerStates([optimizer], [], _NO_SCALE)


def whole_state(optimizer: torch.optim.Optimizer) -> WholeState:
    """A copy on the CPU."""
    return _whole(optimizer, states_of(optimizer))


def gradients_of_shards(model: Model) -> dict[str, torch.Tensor]:
    """By parameter's name, where state is sharded or 16-bit: also of parameters that no optimizer
    has, as one would get them that the job had besides its own."""
    sharded = model.sharded
    assert sharded is not None
    wholes = [whole_state(one.optimizer) for one in state.optimizers]
    taken = {p for one in state.optimizers for p in one.states.given_parameters()}
    left = [p for p in model.parameters() if p.requires_grad and p not in taken]
    if left:
        besides = torch.optim.SGD(left, lr=0.0)
        masters = MasterParameters(sharded, besides)
        masters.core.show_gradients(True)
        wholes.append(_whole(besides, OptimizerStates([besides], [masters], _NO_SCALE)))
    return {whole.names[number]: gradient for whole in wholes
            for number, gradient in whole.gradients.items()}  # fmt: skip


def _whole(optimizer: torch.optim.Optimizer, states: OptimizerStates) -> WholeState:
    with _as_state(optimizer):
        whole = _copied(states.whole())
    masters: dict[int, torch.Tensor] = whole.get(_MASTERS, {})
    values, gradients = dict(masters), {}
    kept: dict[int, dict[str, Any]] = whole["state"]
    for number, held in kept.items():
        value = held.pop(_VALUE, None)
        if value is not None and number not in masters:
            values[number] = value
        if (gradient := held.pop(_GRADIENT, None)) is not None:
            gradients[number] = gradient
    return WholeState(states.parameter_names(), values, gradients, kept, whole["param_groups"])


@contextlib.contextmanager
def _as_state(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Inside, the state of each parameter holds its value and gradient, too: the gradient that the
    update is made from, if the optimizer's kernel multiplies it by something."""
    factor = optimizer.gradient_factor if isinstance(optimizer, FusedAdam) else 1.0
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    made = [p for p in parameters if p not in optimizer.state]
    try:
        for parameter in parameters:
            held = optimizer.state[parameter]
            held[_VALUE] = parameter.detach()
            if parameter.grad is not None:
                gradient = parameter.grad.detach()
                gradient = gradient.to_dense() if gradient.is_sparse else gradient
                held[_GRADIENT] = gradient if factor == 1.0 else gradient * factor
        yield
    finally:
        for parameter in parameters:
            optimizer.state[parameter].pop(_VALUE, None)
            optimizer.state[parameter].pop(_GRADIENT, None)
        for parameter in made:
            del optimizer.state[parameter]


def _copied(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.detach().to("cpu", copy=True), tree)
