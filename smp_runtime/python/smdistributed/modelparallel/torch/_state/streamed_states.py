# SPDX-License-Identifier: Apache-2.0
"""State of optimizers by field and parameter, a value at a time: how it is written for others, and
taken from what they wrote.

A field is what an optimizer keeps with an element for each of the parameter (``exp_avg``); other
things that it keeps for a parameter (``step``) are alike on all ranks that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from smdistributed.modelparallel.torch._ranks import comm
from smdistributed.modelparallel.torch._sharding.unit_entries import UnitValues
from smdistributed.modelparallel.torch._state.lazy_values import LazyValues
from smdistributed.modelparallel.torch._state.optimizer_states import OptimizerStates
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.ports import Masters, Sharded

Values: TypeAlias = Mapping[str, torch.Tensor]
Agree: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class KeptState:
    """What the optimizers of all ranks keep, by name of parameter."""

    fields: dict[str, dict[str, torch.dtype]]
    """Names of the parameters that have each field, and the type that it has there."""
    others: dict[str, dict[str, Any]]
    """By parameter, then by key."""
    groups: Sequence[tuple[dict[str, Any], Sequence[str]]]
    """Settings of each group, and the names of its parameters."""


class StreamedState:
    """The state of ``states``, whole but for slices of tensor ranks, one value at a time.
    Construction is collective over the job; ``agree()`` raises inside what any rank raises."""

    def __init__(self, states: OptimizerStates, agree: Agree) -> None:
        self._states = states
        with agree():
            here = _of_masters(states.masters) if states.masters else _of_parameters(states)
        groups = list(zip(states.settings(), states.described().groups, strict=True))
        self.kept = _merged(comm.allgather(here, comm.CommGroup.WORLD), groups)

    def values(self, field: str) -> Values:
        """Those of this rank's pipeline stage, on the CPU. Where state is shared with other ranks,
        to get one is collective over these: see ``UnitValues``."""
        masters = self._states.masters
        if not masters:
            held = {name: kept[field] for name, kept in self._states.local_state().items()
                    if field in kept}  # fmt: skip
            return LazyValues(held, lambda name: held[name].detach().cpu())
        types = _types_of_arenas(masters[0].sharded, field, self.kept.fields[field])
        return UnitValues(masters[0].sharded, lambda: _arenas_of(masters, field, types))


def _of_parameters(states: OptimizerStates) -> KeptState:
    found = KeptState({}, {}, ())
    shapes = states.described().shapes
    for name, kept in states.local_state().items():
        for key, value in kept.items():
            is_field = isinstance(value, torch.Tensor) and value.dim() > 0
            if is_field and tuple(value.shape) == shapes.get(name):
                found.fields.setdefault(key, {})[name] = value.dtype
            else:
                found.others.setdefault(name, {})[key] = _known(name, key, value)
    return found


def _of_masters(masters: Sequence[Masters]) -> KeptState:
    found = KeptState({}, {}, ())
    for one in masters:
        names = one.sharded.names
        for run in one.runs:
            stepped = [names[piece.parameter] for piece in run.pieces]
            for key, value in one.optimizer.state.get(run.parameter, {}).items():
                is_field = isinstance(value, torch.Tensor) and value.dim() > 0
                if is_field and value.shape == run.parameter.shape:
                    found.fields.setdefault(key, {}).update(dict.fromkeys(stepped, value.dtype))
                    continue
                for name in stepped:
                    found.others.setdefault(name, {})[key] = _known(name, key, value)
    return found


def _known(name: str, key: str, value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        raise SMPUnsupportedError(
            f"the optimizer keeps a {type(value).__name__} as {key} for parameter {name}, of which "
            "nobody could say which element of the parameter it belongs to. "
            "smp.save_checkpoint(partial=True) saves it for jobs of the same degrees"
        )
    if isinstance(value, torch.Tensor) and value.numel() > 1:
        raise SMPUnsupportedError(
            f"the optimizer keeps {key} of shape {tuple(value.shape)} for parameter {name}, which "
            "has another: there is no way to say which elements of it belong to which of the "
            "parameter. smp.save_checkpoint(partial=True) saves it for jobs of the same degrees"
        )
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _merged(
    parts: Sequence[KeptState], groups: Sequence[tuple[dict[str, Any], Sequence[str]]]
) -> KeptState:
    merged = KeptState({}, {}, groups)
    for part in parts:
        for field, dtypes in part.fields.items():
            merged.fields.setdefault(field, {}).update(dtypes)
        for name, kept in part.others.items():
            merged.others.setdefault(name, {}).update(kept)
    return merged


def _types_of_arenas(
    sharded: Sharded, field: str, types: Mapping[str, torch.dtype]
) -> dict[torch.dtype, torch.dtype]:
    """The type of a field by that of the masters, which are in one arena by their type; alike on
    all ranks, whatever they keep.

    Raises SMPUnsupportedError where parameters of one type have several.
    """
    found: dict[torch.dtype, torch.dtype] = {}
    for number, name in enumerate(sharded.names):
        if name not in types:
            continue
        of_master = sharded.store.master_type(number)
        if found.setdefault(of_master, types[name]) != types[name]:
            raise SMPUnsupportedError(
                f"the optimizer keeps {field} of {name} as {types[name]}, and of parameters of the "
                f"same type as {found[of_master]}: their shards cannot be put together"
            )
    return found


def _arenas_of(
    masters: Sequence[Masters], field: str, types: Mapping[torch.dtype, torch.dtype]
) -> list[torch.Tensor]:
    """What this rank keeps of a field, laid out as its masters; zeros where it keeps none."""
    sharded: Sharded = masters[0].sharded
    arenas = [torch.zeros_like(arena, dtype=types.get(arena.dtype, arena.dtype))
              for arena in sharded.store.masters()]  # fmt: skip
    for one in masters:
        for run in one.runs:
            value = one.optimizer.state.get(run.parameter, {}).get(field)
            if value is None:
                continue
            for piece in run.pieces:
                place = arenas[piece.arena].narrow(0, piece.offset, piece.elements)
                place.copy_(run.slice_of(piece, value))
    return arenas
