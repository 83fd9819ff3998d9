# SPDX-License-Identifier: Apache-2.0
"""Values that the ranks of a job hold of its model, whole, under the wrapped module's names.

All of it is on the CPU. Collective over a copy of the model, and where its state is sharded over
all copies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from smdistributed.modelparallel.torch._session import comm, ranks
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch._state.model_names import first_names
from smdistributed.modelparallel.torch._state.tensor_states import axes_of, whole_entries
from smdistributed.modelparallel.torch.model_states import to_cpu
from smdistributed.modelparallel.torch.ports import Model

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
    own = {name: (distribution_axis(p) is not None, _digest(p))
           for name, p in model.local_named_parameters()}  # fmt: skip
    everyone = comm.allgather((ranks.tp_rank(), ranks.rank(), own), comm.CommGroup.DP_GROUP)
    for tp_rank, rank, theirs in everyone:
        for name, (sliced, digest) in own.items():
            if sliced and tp_rank != ranks.tp_rank():
                continue  # another slice
            if theirs.get(name, (sliced, digest))[1] != digest:
                return f"parameter {name} has other values on rank {rank} than on {ranks.rank()}"
    return None


def _digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(raw.numpy().tobytes(), digest_size=16).hexdigest()
