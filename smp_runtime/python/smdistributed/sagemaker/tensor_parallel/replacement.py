# SPDX-License-Identifier: Apache-2.0
"""A model of Transformers, replaced by one with split layers and the same values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from smdistributed import _runtime
from smdistributed.modelparallel.torch._annotations.model_creation import default_type
from smdistributed.modelparallel.torch._annotations.tensor_annotations import set_tensor_parallelism
from smdistributed.modelparallel.torch._annotations.tensor_registry import Registration
from smdistributed.modelparallel.torch._ranks import comm
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis, slice_of
from smdistributed.modelparallel.torch._tensor.first_values import agree_on_values, take_values
from smdistributed.modelparallel.torch._tensor.tensor_plan import (
    Replacement,
    plan_tensor_parallelism,
)
from smdistributed.modelparallel.torch._tensor.tensor_replacement import (
    predefined_registration,
    take_place,
)
from smdistributed.modelparallel.torch.exceptions import (
    SMPConfigError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.nn.huggingface.causal_models import (
    GPTNEOX_MODELS,
    LLAMA_MODELS,
)
from smdistributed.modelparallel.torch.nn.initial_values import drawn_later
from smdistributed.modelparallel.torch.nn.normalization import RMSNorm
from smdistributed.modelparallel.torch.state_mod import state as session_state
from smdistributed.sagemaker import _session
from smdistributed.sagemaker.recomputed_buffers import recompute_buffers
from smdistributed.sagemaker.state_handler import state
from smdistributed.sagemaker.tensor_parallel.batch_check import BatchCheck
from smdistributed.sagemaker.tensor_parallel.transformer import TransformerLMHead
from smdistributed.sagemaker.tensor_parallel.whole_states import WholeStates

MODELS = {**LLAMA_MODELS, **GPTNEOX_MODELS}


def split(model: nn.Module, from_rank0: bool) -> TransformerLMHead:
    """The model over the ranks of each tensor-parallel group. All ranks call it.

    Where ``model`` has no storage, neither has what comes back. With ``from_rank0`` the group of
    rank 0 has slices of that rank's values; what others have, FSDP is to replace.
    """
    registration = _registration(model)
    _session.begin(state.tp_size, state.random_seed)
    for module in model.modules():
        recompute_buffers(module, getattr(model, "config", None), torch.device("cpu"))
    one = _planned(model, registration)
    has_values = _has_values(model)
    reports = comm.allgather((repr(one.kwargs), has_values, _type(model)), comm.CommGroup.TP_GROUP)
    takes = from_rank0 and state.rank < state.tp_size
    _check_alike(reports, takes)
    if takes:
        made = _of_rank0(one, reports[0][2])
    elif has_values:
        made = _of_given(one)
    else:
        made = _without_storage(one)
    _complete(made, one)
    if from_rank0:
        made.waits_for_rank0 = state.world_size > state.tp_size
    return made


def _registration(model: nn.Module) -> Registration:
    if isinstance(model, FullyShardedDataParallel):
        raise SMPConfigError(
            "torch.sagemaker.transform got a model that FullyShardedDataParallel has wrapped; call "
            "transform before it, with the model itself"
        )
    known = predefined_registration(model)
    if known is None or MODELS.get(type(model).__name__) is not known:
        kind = type(model)
        raise SMPUnsupportedError(
            f"torch.sagemaker.transform got a {kind.__module__}.{kind.__qualname__}, which it "
            f"cannot split; expected one of Transformers' {', '.join(sorted(MODELS))}"
        )
    return dataclasses.replace(known, dist_module=TransformerLMHead)


def _planned(model: nn.Module, registration: Registration) -> Replacement:
    set_tensor_parallelism(model)
    plan = plan_tensor_parallelism(
        model, lambda module: registration if module is model else None, state.tp_size
    )
    if not plan.replacements:
        raise SMPUnsupportedError(
            f"torch.sagemaker.transform cannot split {type(model).__name__} over "
            f"{state.tp_size} ranks: {plan.left[0].reason}; choose a tensor_parallel_degree that "
            "divides its heads, those of keys and values, its hidden and its intermediate size, "
            "and positions whose rope_type is default, linear or llama3"
        )
    one = plan.replacements[0]
    if not all(map(math.isfinite, one.kwargs.get("rotary_frequencies", ()))):
        raise SMPUnsupportedError(
            f"the frequencies of rotary positions of the given {type(model).__name__} have no "
            "storage, and this version of Transformers does not tell them without: create buffers "
            "with storage, as accelerate's init_empty_weights() does"
        )
    return one


def _has_values(model: nn.Module) -> bool:
    without = [name for name, one in model.named_parameters() if one.is_meta]
    if without and any(not one.is_meta for one in model.parameters()):
        raise SMPValidationError(
            f"torch.sagemaker.transform got a model of which some parameters have storage, and "
            f"{without[0]} has none; give all of them storage, or none"
        )
    return not without


def _type(model: nn.Module) -> torch.dtype:
    return next(one.dtype for one in model.parameters() if one.is_floating_point())


def _check_alike(reports: list[tuple[str, bool, torch.dtype]], takes: bool) -> None:
    if any(one[0] != reports[0][0] for one in reports):
        raise SMPValidationError(
            "the ranks of a tensor-parallel group gave torch.sagemaker.transform models of "
            "different sizes; make them of one config"
        )
    if takes and not reports[0][1]:
        raise SMPValidationError(
            "torch.sagemaker.transform(load_state_dict_from_rank0=True): the model of rank 0 has "
            "no storage; load its values there, and create it on the meta device elsewhere"
        )
    if not takes and len({one[1] for one in reports}) > 1:
        raise SMPValidationError(
            "some ranks of a tensor-parallel group gave torch.sagemaker.transform values, and "
            "others a model without storage; load them on all, or on rank 0 with "
            "load_state_dict_from_rank0=True"
        )


def _made(one: Replacement) -> TransformerLMHead:
    made = one.registration.dist_module(*one.args, **one.kwargs)
    assert isinstance(made, TransformerLMHead)
    return made


def _of_given(one: Replacement) -> TransformerLMHead:
    agree_on_values([one], {})
    with default_type(_type(one.module)), drawn_later() as draws:
        made = _made(one)
    take_values(one, made, draws, set(), required=True)
    return made


def _without_storage(one: Replacement) -> TransformerLMHead:
    with torch.device("meta"), default_type(_type(one.module)), drawn_later() as draws:
        made = _made(one)
    made.first_values = {
        (module, name): draws[parameter]
        for module in made.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter in draws
    }
    return made


def _of_rank0(one: Replacement, dtype: torch.dtype) -> TransformerLMHead:
    with default_type(dtype), drawn_later() as draws:
        made = _made(one)
    if state.rank == 0:
        take_values(one, made, draws, set(), required=True)
    translate = one.registration.from_plain or dict
    values = translate(one.module.state_dict()) if state.rank == 0 else {}
    for name, entry in _once(made):
        axis = distribution_axis(entry)
        shape = list(entry.shape)
        if axis is not None:
            shape[axis] *= state.tp_size
        value = values[name].cpu() if values else torch.empty(shape, dtype=entry.dtype)
        _broadcast(value.contiguous())
        with torch.no_grad():
            entry.copy_(slice_of(value, axis))
    return made


def _once(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    seen: set[torch.Tensor] = set()
    for name, entry in model.state_dict(keep_vars=True).items():
        if entry not in seen:
            seen.add(entry)
            yield name, entry


def _broadcast(value: torch.Tensor) -> None:
    ranks = session_state.require_initialized("torch.sagemaker.transform")
    group = str(ranks.groups.cpu_group("TP").group_name)
    _runtime.broadcast_tensors(group, [value], 0, False, ranks.barriers.watch)


def _complete(made: TransformerLMHead, one: Replacement) -> None:
    made.register_forward_pre_hook(BatchCheck(), with_kwargs=True)
    take_place(one, made)
    from_plain, to_plain = one.registration.from_plain, one.registration.to_plain
    assert from_plain is not None and to_plain is not None
    _name_norms(made, one.module)
    entries = made.state_dict(keep_vars=True)
    axes = {name: distribution_axis(entry) for name, entry in entries.items()}
    made.whole_states = WholeStates(axes, from_plain, to_plain)


def _name_norms(made: nn.Module, given: nn.Module) -> None:
    """Has each norm be of the class of the given model's norms, too: scripts tell by it which
    parameters to spare from weight decay."""
    kinds = {type(part) for part in given.modules() if type(part).__name__.endswith("RMSNorm")}
    if len(kinds) != 1:
        return
    (kind,) = kinds
    both: dict[type[RMSNorm], type[RMSNorm]] = {}
    for module in made.modules():
        if not isinstance(module, RMSNorm) or isinstance(module, kind):
            continue
        ours = type(module)
        if ours not in both:
            both[ours] = type(ours.__name__, (ours, kind), {"__module__": ours.__module__})
        module.__class__ = both[ours]
