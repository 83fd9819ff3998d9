# SPDX-License-Identifier: Apache-2.0
"""Sharded or 16-bit state of this rank: its part for files and state dicts, and back from any saved
state.

A part says of each parameter which elements it holds; nothing but plain containers and tensors is
in it. ``smp_runtime/checkpoint/state`` makes parts, and of those that were read a
``_runtime.SavedState``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._state.state_fit import Shapes, check_model
from smdistributed.modelparallel.torch.ports import Masters, Sharded

Part = dict[str, Any]


def part_of_rank(sharded: Sharded, masters: Sequence[Masters]) -> Part:
    """The state that this rank owns, without a copy; with the groups of all ``masters``, one behind
    the other."""
    part: Part = _owned(sharded, masters).part_of_rank()
    return part


def part_for_file(sharded: Sharded, masters: Sequence[Masters]) -> Part:
    """The same, as this rank saves it. Collective over the shard group."""
    with sharded.waiting("the saving of shards"):
        part: Part = _owned(sharded, masters).part_for_file()
    return part


def _owned(sharded: Sharded, masters: Sequence[Masters]) -> _runtime.OwnedState:
    return _runtime.OwnedState(
        store=sharded.store,
        sharers=sharded.plan.degree,
        shared=max(sharded.plan.degree, sharded.plan.own_degree) > 1,
        index=sharded.groups.index,
        names=sharded.names,
        shapes=sharded.shapes,
        trained=[parameter.requires_grad for parameter in sharded.parameters],
        masters=[one.core for one in masters],
        groups=[one.settings_of_groups() for one in masters],
        members=[one.numbers() for one in masters],
        states=[[one.optimizer.state.get(run.parameter, {}) for run in one.runs]
                for one in masters],
    )  # fmt: skip


def is_shared(part: Part) -> bool:
    """True if other ranks hold what this part does not."""
    return bool(part.get("shared", part["partition_count"] > 1))


def only(part: Part, names: Collection[str]) -> Part:
    """The part of some parameters."""
    kept = {name: entry for name, entry in part["parameters"].items() if name in names}
    return {**part, "parameters": kept}


def check_same_model(
    sharded: Sharded, masters: Sequence[Masters], saved: _runtime.SavedState
) -> None:
    """Raises SMPCheckpointError, naming the first parameter that differs, if ``saved`` is another
    model's."""
    numbers = [number for number, p in enumerate(sharded.parameters) if p.requires_grad]
    if saved.is_one_of_several:  # this rank's own
        numbers = [piece.parameter for piece in sharded.store.pieces()]
    if masters and saved.is_of_optimizer:
        stepped = {number for one in masters for number in one.group_of}
        numbers = [number for number in numbers if number in stepped]
    own: Shapes = {sharded.names[number]: sharded.shapes[number] for number in numbers}
    there: Shapes = {name: shape for name, shape in saved.shapes.items() if name in own}
    check_model(there, own, saved.where, strict=True)


def restore_shards(
    sharded: Sharded, masters: Sequence[Masters], saved: _runtime.SavedState
) -> None:
    """Takes masters and, with ``masters``, the optimizers' state from ``saved``, which the caller
    has compared. Collective."""
    settings = iter(saved.groups)
    for one in masters:
        one.take_settings([next(settings)[0] for _ in one.original_groups])
    saved.restore_masters(sharded.store, sharded.names)
    for one in masters:
        one.take_state(saved)
    sharded.store.publish()
