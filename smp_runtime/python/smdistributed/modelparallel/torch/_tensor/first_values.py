# SPDX-License-Identifier: Apache-2.0
"""First values of a split model: slices of those that a script gave its modules, wherever it did.

A parameter without values is drawn, if its module is replaced, and else an error. It has none if
nobody wrote its memory, or if it stands in a model of Transformers that did not get its own
initialization (scripts replace ``init_weights`` to save time) and still is what torch's constructor
made of it.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._annotations.constructed_values import (
    is_as_constructed,
    unwritten_part,
)
from smdistributed.modelparallel.torch._delayed.delayed_parameters import (
    draw_from,
    draws,
    writes_to,
)
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._ranks.log import info, warning
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis, slice_of
from smdistributed.modelparallel.torch._tensor.tensor_plan import Replacement
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError
from smdistributed.modelparallel.torch.state_mod import state


class Origin(IntEnum):
    """Origin of the values of a parameter; for one that modules share, the largest."""

    GIVEN = 0
    CONSTRUCTOR = 1
    """Torch's, of a layer whose model was to initialize it."""
    NOBODY = 2
    UNKNOWN = 3
    """The constructor or the script."""
    HALF = 4
    """Some elements were never written, or are NaN."""


#: Origins of parameters that have no values of their own.
DRAWN = (Origin.CONSTRUCTOR, Origin.NOBODY)


def origins(root: nn.Module) -> dict[nn.Parameter, Origin]:
    """Origins of the values of the parameters of ``root``."""
    initializing = _of_transformers(root)
    found: dict[nn.Parameter, Origin] = {}
    for module in root.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                origin = _origin(module, name, parameter, module in initializing)
                found[parameter] = max(origin, found.get(parameter, Origin.GIVEN))
    return found


def _origin(
    module: nn.Module, name: str, parameter: nn.Parameter, to_be_initialized: bool
) -> Origin:
    if parameter.is_meta:
        if writes_to(parameter) == 0:
            return Origin.NOBODY
    elif unwritten := unwritten_part(parameter):
        return Origin.NOBODY if unwritten == 1 else Origin.HALF
    if not to_be_initialized or getattr(parameter, "_is_hf_initialized", False):
        return Origin.GIVEN
    same = is_as_constructed(module, name)
    if same is None:
        return Origin.UNKNOWN
    return Origin.CONSTRUCTOR if same else Origin.GIVEN


def _of_transformers(root: nn.Module) -> set[nn.Module]:
    """The modules of models that Transformers initializes, and has not. It notes on each that it
    has, also where it loaded one."""
    kind = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", None)
    if kind is None:
        return set()
    models = [module for module in root.modules() if isinstance(module, kind)]
    return {
        module
        for model in models
        for module in model.modules()
        if not getattr(module, "_is_hf_initialized", False)
    }


def refuse_unknown(
    replaced: Iterable[tuple[str, nn.Module]], root: nn.Module, found: Mapping[nn.Parameter, Origin]
) -> None:
    """Raises SMPTensorParallelError, naming the parameter, where it cannot be told whether a module
    that is replaced was given values, and where one that is not has none."""
    taken: set[nn.Parameter] = set()
    for prefix, module in replaced:
        for name, parameter in module.named_parameters(remove_duplicate=False):
            taken.add(parameter)
            _refuse_replaced(_joined(prefix, name), found[parameter])
    for name, parameter in _left(root, taken):
        origin = found[parameter]
        if origin is Origin.NOBODY or (origin is Origin.CONSTRUCTOR and _varies(parameter)):
            raise SMPTensorParallelError(
                f"parameter {name} was never initialized, and tensor parallelism does not replace "
                "its module, so that it would be trained from what its memory or torch's "
                "constructor left: let the model be initialized (do not replace init_weights or "
                "torch.nn.init), or load its weights, before smp.DistributedModel"
            )


def _refuse_replaced(name: str, origin: Origin) -> None:
    if origin is Origin.HALF:
        raise SMPTensorParallelError(
            f"parameter {name} has values in part: others of its elements were never written, or "
            "are NaN; initialize or load all of it before smp.DistributedModel"
        )
    if origin is Origin.UNKNOWN:
        raise SMPTensorParallelError(
            f"parameter {name} is of a model whose initialization by Transformers was skipped, and "
            "it is not known whether the script gave it values since: build the model inside "
            "smp.model_creation(tensor_parallelism=True), or let Transformers initialize it "
            "(init_weights) before its weights are loaded"
        )


def _left(root: nn.Module, taken: set[nn.Parameter]) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in root.named_parameters() if p not in taken)


def _varies(parameter: nn.Parameter) -> bool:
    """True if a parameter is more than the one value that norms begin with in any case."""
    if parameter.is_meta or parameter.numel() < 2:
        return False
    flat = parameter.detach().reshape(-1)
    return bool((flat != flat[0]).any())


def _joined(prefix: str, name: str) -> str:
    return name if prefix == "(root)" else f"{prefix}.{name}"


Draws = Mapping[nn.Parameter, Callable[[torch.Tensor], None]]


def agree_on_values(
    replacements: Sequence[Replacement], found: Mapping[nn.Parameter, Origin]
) -> set[nn.Parameter]:
    """The parameters that have no values, of modules that are replaced. Collective over the
    tensor-parallel group: where its ranks built other values, those of the first are all ranks'."""
    tensors = [
        tensor
        for one in replacements
        for tensor in (*one.module.parameters(), *one.module.buffers())
    ]
    without = [number for number, t in enumerate(tensors) if found.get(t) in DRAWN]  # type: ignore[call-overload]
    if ranks.tp_size() > 1:
        without = _of_first_rank(tensors, without)
    return {p for number in without if isinstance(p := tensors[number], nn.Parameter)}


def _of_first_rank(tensors: list[torch.Tensor], without: list[int]) -> list[int]:
    real = [tensor for tensor in tensors if not tensor.is_meta]
    states, seed = draws()
    own = (without, [_checksum(t) for t in real], [_checksum(t) for t in states], seed)
    everybodys = comm.allgather(own, comm.CommGroup.TP_GROUP)
    first: tuple[list[int], list[int], list[int], int] = everybodys[0]
    if all(one == first for one in everybodys):
        return without
    if any(len(one[2]) != len(first[2]) for one in everybodys):
        raise SMPTensorParallelError(
            "the ranks of a tensor-parallel group seeded torch's generator at other places while "
            "they built a model with delayed parameters, so that their slices would not be of one "
            "tensor; call torch.manual_seed alike on all of them, before the model is built"
        )
    info(
        "tensor parallelism: ranks of a group built other values, for they seeded their generators "
        "otherwise or loaded weights on one of them; all begin with those of the first"
    )
    draw_from(*comm.allgather((states, seed), comm.CommGroup.TP_GROUP)[0])
    session = state.require_initialized("first values")
    group = str(session.groups.cpu_group("TP").group_name)
    with torch.no_grad():
        for tensor in real:
            value = tensor.detach().cpu().contiguous()
            _runtime.broadcast_tensors(group, [value], 0, False, session.barriers.watch)
            tensor.copy_(value)
    return first[0]


def _checksum(tensor: torch.Tensor) -> int:
    values = tensor.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(values.view(torch.uint8).numpy().data)


@dataclass(frozen=True)
class _Whole:
    """State of a module under the distributed names, and which of it was given by somebody."""

    values: Mapping[str, Any]
    given: Mapping[str, bool]


def take_values(
    one: Replacement, module: nn.Module, draw: Draws, without: set[nn.Parameter], *, required: bool
) -> None:
    """Gives ``module`` this rank's slices of the values of the module that it replaces, and draws
    those of parameters that are ``without``.

    Raises SMPTensorParallelError where values do not fit that somebody gave, or that are
    ``required`` by ``_match_weights``; new ones in place of a constructor's are told of.
    """
    whole = _whole(one, without)
    entries = module.state_dict(keep_vars=True)
    misfit = _misfit(one, module, entries, whole)
    if misfit is not None:
        _refuse_loss(one, misfit, whole, required=required)
        warning(f"tensor parallelism: module {one.name} begins with new values: {misfit}")
        whole = _Whole({}, {})
    _refuse_two_values_of_one(one, entries, whole)
    taken: set[torch.Tensor] = set()
    with torch.no_grad():
        for name, entry in entries.items():
            if whole.given.get(name, False):
                entry.copy_(slice_of(whole.values[name], distribution_axis(entry)))
                taken.add(entry)
    for parameter, act in draw.items():
        if parameter not in taken:
            act(parameter)


def _whole(one: Replacement, without: set[nn.Parameter]) -> _Whole:
    translate = one.registration.from_plain or dict
    entries = one.module.state_dict(keep_vars=True)
    values = translate({name: entry.detach() for name, entry in entries.items()})
    if not without.intersection(entries.values()):
        return _Whole(values, dict.fromkeys(values, True))
    # Translated as the values are, of which parts may come from one of both kinds.
    marks = translate(
        {
            name: torch.full((), float(entry not in without)).expand(entry.shape)
            for name, entry in entries.items()
        }
    )
    return _Whole(values, {name: bool(mark.all()) for name, mark in marks.items()})


def _misfit(
    one: Replacement, module: nn.Module, entries: Mapping[str, torch.Tensor], whole: _Whole
) -> str | None:
    """Why the values of the plain module are not those of ``module``."""
    before, after = type(one.module).__name__, type(module).__name__
    missing = sorted(entries.keys() - whole.values.keys())
    if missing:
        return (
            f"there are no values for {', '.join(missing[:4])} ({len(missing)} in all) of {after} "
            f"in {before}"
        )
    for name, entry in entries.items():
        value = whole.values[name]
        if slice_of(value, distribution_axis(entry)).shape != entry.shape:
            return (
                f"there are values of shape {tuple(value.shape)} for {name} in {before}, of which "
                f"{after} has {tuple(entry.shape)} here"
            )
    return None


def _refuse_loss(one: Replacement, misfit: str, whole: _Whole, *, required: bool) -> None:
    if required:
        raise SMPTensorParallelError(
            f"_match_weights cannot match: {misfit}; register the class without it"
        )
    given = _given_since_construction(one.module) if any(whole.given.values()) else None
    if given is not None:
        raise SMPTensorParallelError(
            f"its values would be lost, and {given} was given some since it was made: {misfit}; "
            "load them after smp.DistributedModel, under the names of the distributed module, or "
            "keep the module whole: smp.set_tensor_parallelism(module, False)"
        )


def _given_since_construction(root: nn.Module) -> str | None:
    """A parameter of ``root`` that is not what its constructor left, as far as that is known."""
    for prefix, module in root.named_modules():
        for name in module._parameters:
            if is_as_constructed(module, name) is False:
                return f"{prefix}.{name}" if prefix else name
    return None


def _refuse_two_values_of_one(
    one: Replacement, entries: Mapping[str, torch.Tensor], whole: _Whole
) -> None:
    """Refuses a parameter that has two names here and two values there: one would be lost."""
    first: dict[torch.Tensor, str] = {}
    for name, entry in entries.items():
        if not whole.given.get(name, False):
            continue
        other = first.setdefault(entry, name)
        if other == name or whole.values[other] is whole.values[name]:
            continue
        if entry.is_meta or torch.equal(whole.values[other], whole.values[name]):
            continue
        raise SMPTensorParallelError(
            f"{other} and {name} are one parameter in {type(one.module).__name__}'s distributed "
            "counterpart, since its config ties them, and they have two values here; call "
            "tie_weights() on the model before smp.DistributedModel, or set "
            "config.tie_word_embeddings to False before it is made"
        )
