# SPDX-License-Identifier: Apache-2.0
"""Values, gradients and state of an optimizer, whole, wherever ranks hold pieces of them.

All of it is on the CPU. Values have the names of this model. Collective over a copy of the model,
and where its state is sharded over all copies. An optimizer's gradients and values travel as if
they were its state, so that whatever makes whole state of the ranks' makes whole gradients, too:
collective as ``optimizer.state_dict()`` is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checks.input_check import digest
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._sharding.master_parameters import MasterParameters
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch._state.model_names import first_names
from smdistributed.modelparallel.torch._state.optimizer_states import OptimizerStates, states_of
from smdistributed.modelparallel.torch._state.tensor_states import axes_of, whole_entries
from smdistributed.modelparallel.torch.model_states import to_cpu
from smdistributed.modelparallel.torch.optimizers import FusedAdam
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state

Values = dict[str, torch.Tensor]


def takes_part(model: Model) -> bool:
    """True if this rank is needed: of the copies of a model whose state is whole, one is."""
    return model.sharded is not None or ranks.rdp_rank() == 0


def whole_values(model: Model) -> Values:
    """Parameters, as their masters have them where there are such, and buffers, also those that no
    state dict has. Under the names of this model."""
    own = {key: value for key, value in model.local_state_dict().items()
           if isinstance(value, torch.Tensor)}  # fmt: skip
    sharded = model.sharded
    if sharded is not None and not sharded.plan.on_demand:  # else they are masters' already
        masters = dict(sharded.whole_values())
        for key, name in first_names(model.get_module()).items():
            if key in own and name in masters:
                own[key] = masters[name].to(own[key].dtype)
    own.update((name, buffer) for name, buffer in model.local_named_buffers() if name not in own)
    return _of_all_partitions(model, own)


def whole_gradients(model: Model, values: Values) -> Values:
    """The gradients that parameters have, zeros where they have none; buffers as in ``values``.
    For a model whose state is whole on each rank."""
    parameters = dict(model.get_module().named_parameters(remove_duplicate=False))
    local = {name for name, _ in model.local_named_parameters()}
    own = {}
    for key, name in first_names(model.get_module()).items():
        if name in local:
            parameter = parameters[key]
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            own[key] = gradient.to_dense() if gradient.is_sparse else gradient
    return values | _of_all_partitions(model, own)


def _of_all_partitions(model: Model, own: Mapping[str, torch.Tensor]) -> Values:
    whole: Values = to_cpu(whole_entries(own, axes_of(model.get_module())))
    if ranks.pp_size() == 1:
        return whole
    merged: Values = {}
    for part in comm.allgather(whole, comm.CommGroup.PP_GROUP):
        merged.update(part)
    return merged


def named_as_before(model: Model, values: Values) -> Values:
    """The same under the names of the module that was wrapped, before parts were replaced."""
    for to_plain, _ in model.translations():
        values = to_plain(values)
    return values


def copies_that_differ(model: Model) -> str | None:
    """The first parameter of this rank of which another copy has other values, and whose; None
    where all are equal. Collective over the data-parallel group."""
    if model.sharded is not None or ranks.dp_size() == 1:
        return None
    own = {name: (distribution_axis(p) is not None, digest(p))
           for name, p in model.local_named_parameters()}  # fmt: skip
    everyone = comm.allgather((ranks.tp_rank(), ranks.rank(), own), comm.CommGroup.DP_GROUP)
    for tp_rank, rank, theirs in everyone:
        for name, (sliced, mine) in own.items():
            if sliced and tp_rank != ranks.tp_rank():
                continue  # another slice
            if theirs.get(name, (sliced, mine))[1] != mine:
                return f"parameter {name} has other values on rank {rank} than on {ranks.rank()}"
    return None


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


def whole_state(optimizer: torch.optim.Optimizer) -> WholeState:
    """A copy on the CPU, of an optimizer that may be a wrapped one."""
    wrapper = state.optimizers.wrapper_of(optimizer)
    own = OptimizerStates([optimizer], [], _NO_SCALE)
    return _whole(optimizer, own if wrapper is None else states_of([wrapper]))


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
