# SPDX-License-Identifier: Apache-2.0
"""Masters and optimizer state of one rank as named runs of elements, and back.

A saved part says of each parameter which elements it holds. So parts of any number of ranks, of a
job with other degrees or of none, make the shards of this one: each rank copies what overlaps with
what it owns. Nothing but plain containers and tensors is in it.

In files masters lie as published helper scripts read them: ``fp32_flat_groups`` has of each group
of the optimizer, parameter after parameter, the rank's ceil(elements / degree) elements, with zeros
behind the last ones; ``parameters`` shares that memory. State of the optimizer lies as the rank
holds it. That is format 2; in format 1, which did not say its number, and in state dicts of an
optimizer masters lie as state does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from smdistributed.modelparallel.torch._sharding.master_parameters import MasterParameters
from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch._state.state_fit import Shapes, check_model
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

Part = dict[str, Any]

_FORMATS = (1, 2)


def part_of_rank(sharded: ShardedModel, masters: Sequence[MasterParameters]) -> Part:
    """What this rank owns, without a copy; with the groups of all ``masters``, one behind the
    other."""
    flats = sharded.store.masters()
    parameters: dict[str, Any] = {}
    for piece in sharded.store.pieces():
        parameters[sharded.names[piece.parameter]] = {
            "shape": sharded.shapes[piece.parameter],
            "start": piece.start,
            "master": flats[piece.arena].narrow(0, piece.offset, piece.elements),
            "state": {},
            "scalars": {},
        }
    for one, run in ((of, run) for of in masters for run in of.runs):
        for key, value in one.optimizer.state.get(run.parameter, {}).items():
            for piece in run.pieces:
                entry = parameters[sharded.names[piece.parameter]]
                if isinstance(value, torch.Tensor) and value.shape == run.parameter.shape:
                    entry["state"][key] = run.slice_of(piece, value)
                else:
                    entry["scalars"][key] = value
    return {
        "partition_count": sharded.plan.degree,
        "shared": max(sharded.plan.degree, sharded.plan.own_degree) > 1,
        "rank": sharded.groups.index,
        "parameters": parameters,
        "fp32_flat_groups": [flat for one in masters for flat in one.core.flat_groups()] or flats,
        "param_groups": [group for one in masters for group in one.settings_of_groups()],
    }


def part_for_file(sharded: ShardedModel, masters: Sequence[MasterParameters]) -> Part:
    """What this rank saves. Collective over the shard group."""
    part = part_of_rank(sharded, masters)
    groups = [group for one in masters for group in one.numbers()]
    if not masters:
        groups = [list(range(len(sharded.parameters)))]
    grouped = {number for group in groups for number in group}
    rest = [n for n, p in enumerate(sharded.parameters) if p.requires_grad and n not in grouped]
    flats, views = sharded.even_masters([*groups, rest])
    for number, (start, view) in views.items():
        if sharded.parameters[number].requires_grad:  # frozen ones are beside the model's buffers
            entry = part["parameters"].setdefault(
                sharded.names[number],
                {"shape": sharded.shapes[number], "start": 0, "state": {}, "scalars": {}},
            )
            is_real = not sharded.parameters[number].is_complex()  # of a group that has others, too
            master = view.real if view.is_complex() and is_real else view
            entry |= {"master": master, "master_start": start}
    return {**part, "format": _FORMATS[-1], "fp32_flat_groups": flats[:-1]}


def check_format(part: Mapping[str, Any], where: str) -> None:
    """Raises SMPCheckpointError for a part that a later version saved."""
    number = part.get("format", 1)
    if number not in _FORMATS:
        raise SMPCheckpointError(
            f"{where} has shards of format {number!r}; this version reads formats "
            f"{_FORMATS[0]} to {_FORMATS[-1]}: go on with the version of the library that saved "
            "it, or a later one"
        )


def part_of_plain(
    saved: Mapping[str, Any], names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> Part:
    """The same from the state dict of an optimizer over whole parameters; without masters."""
    parameters: dict[str, Any] = {}
    for number, name in enumerate(names):
        shape = shapes.get(name, ())
        entry: dict[str, Any] = {"shape": shape, "start": 0, "state": {}, "scalars": {}}
        for key, value in saved["state"].get(number, {}).items():
            whole = isinstance(value, torch.Tensor) and tuple(value.shape) == shape
            entry["state" if whole else "scalars"][key] = value.reshape(-1) if whole else value
        parameters[name] = entry
    groups = [
        {**{key: value for key, value in group.items() if key != "params"},
         "names": [names[number] for number in group["params"]]}
        for group in saved["param_groups"]
    ]  # fmt: skip
    return {
        "partition_count": 1,
        "of_optimizer": True,  # of those parameters only that it steps
        "rank": 0,
        "parameters": parameters,
        "param_groups": groups,
    }


def is_shared(part: Part) -> bool:
    """Whether other ranks hold what this part does not."""
    return bool(part.get("shared", part["partition_count"] > 1))


def only(part: Part, names: Collection[str]) -> Part:
    """What a part says of some parameters."""
    kept = {name: entry for name, entry in part["parameters"].items() if name in names}
    return {**part, "parameters": kept}


def parts_of_tensor_rank(parts: Sequence[Sequence[Part]], rank: int) -> list[Part]:
    """All that tensor rank ``rank`` has, from the parts of the files of each: its own, and from the
    others' what its own do not hold all of. That is what tensor ranks have alike and share.

    >>> def part(start): return {"parameters": {"w": {"shape": (4,), "start": start,
    ...                                               "master": torch.ones(2)}}}
    >>> [one["parameters"]["w"]["start"] for one in parts_of_tensor_rank([[part(0)], [part(2)]], 1)]
    [2, 0]
    """
    there: dict[tuple[str, str], int] = {}
    for key, elements in (one for part in parts[rank] for one in _held(part)):
        there[key] = there.get(key, 0) + elements
    short = {
        name
        for of_rank in parts
        for part in of_rank
        for (name, kind), _ in _held(part)
        if there.get((name, kind), 0) < torch.Size(part["parameters"][name]["shape"]).numel()
    }
    others = [part for number, of_rank in enumerate(parts) if number != rank for part in of_rank]
    return [*parts[rank], *(only(part, short) for part in others if short)]


def _held(part: Part) -> Iterator[tuple[tuple[str, str], int]]:
    """How many elements of each tensor of each parameter a part has. What the optimizer keeps
    beside them counts as all elements of a tensor."""
    for name, entry in part["parameters"].items():
        if "master" in entry:
            yield (name, "master"), entry["master"].numel()
        for key, run in entry.get("state", {}).items():
            yield (name, f"state {key}"), run.numel()
        if entry.get("scalars"):
            yield (name, "scalars"), torch.Size(entry["shape"]).numel()


def plain_of_parts(
    parts: Sequence[Part], names: Sequence[str] | None
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Whole masters by name, and the state dict of an optimizer over ``names``, in its order;
    without ``names`` masters alone."""
    saved = SavedParts(parts)
    numbers = {name: number for number, name in enumerate(names or ())}
    masters: dict[str, torch.Tensor] = {}
    state: dict[int, dict[str, Any]] = {}
    for name in saved.names:
        shape = saved.shape_of(name)
        elements = int(torch.Size(shape).numel())
        values = saved.values_of(name, 0, elements, with_state=names is not None)
        if "master" in values:
            masters[name] = values.pop("master").view(shape)
        held = {key: value.view(shape) for key, value in values.items()} | saved.scalars_of(name)
        if name in numbers and held:
            state[numbers[name]] = held
    if names is None:
        return masters, {}
    groups = [
        {**{key: value for key, value in group.items() if key != "names"},
         "params": [numbers[name] for name in group["names"]]}
        for group in parts[0]["param_groups"]
    ]  # fmt: skip
    return masters, {"state": state, "param_groups": groups}


class SavedParts:
    """Parts of one or more ranks, asked for runs of elements."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._entries: dict[str, list[dict[str, Any]]] = {}
        for part in parts:
            for name, entry in part["parameters"].items():
                self._entries.setdefault(name, []).append(entry)
        self.names = list(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def shape_of(self, name: str) -> tuple[int, ...]:
        return tuple(self._entries[name][0]["shape"])

    def scalars_of(self, name: str) -> dict[str, Any]:
        """What the optimizer keeps beside tensors of the parameter's shape, alike on all ranks that
        hold some of that."""
        kept = (entry["scalars"] for entry in self._entries[name] if entry["scalars"])
        return dict(next(kept, {}))

    def values_of(
        self, name: str, start: int, elements: int, *, with_state: bool = True
    ) -> dict[str, torch.Tensor]:
        """Each saved tensor of a parameter, from ``start`` on; ``master`` is one of them, and the
        only one without ``with_state``.

        Raises SMPCheckpointError where elements are in no part.
        """
        values: dict[str, torch.Tensor] = {}
        filled: dict[str, int] = {}
        for entry in self._entries[name]:
            state = entry["state"] if with_state else {}
            runs = {key: (entry["start"], run) for key, run in state.items()}
            if "master" in entry:
                runs["master"] = entry.get("master_start", entry["start"]), entry["master"]
            for key, (begin, run) in runs.items():
                first = max(start, begin)
                last = min(start + elements, begin + run.numel())
                if key not in values:
                    values[key], filled[key] = torch.empty(elements, dtype=run.dtype), 0
                if first >= last:
                    continue
                part = run.narrow(0, first - begin, last - first)
                values[key].narrow(0, first - start, last - first).copy_(part)
                filled[key] += last - first
        short = [key for key, count in filled.items() if count != elements]
        if short:
            raise SMPCheckpointError(
                f"the checkpoint holds {filled[short[0]]} of {elements} elements of {short[0]} of "
                f"{name}; files of some ranks are missing"
            )
        return values


def check_same_model(
    sharded: ShardedModel, masters: Sequence[MasterParameters], parts: Sequence[Part], where: str
) -> None:
    """Raises SMPCheckpointError, naming the first parameter that differs, if ``parts`` are another
    model's."""
    saved = SavedParts(parts)
    numbers = [number for number, p in enumerate(sharded.parameters) if p.requires_grad]
    if len(parts) == 1 and is_shared(parts[0]):  # this rank's own
        numbers = [piece.parameter for piece in sharded.store.pieces()]
    if masters and all(part.get("of_optimizer", False) for part in parts):
        stepped = {number for one in masters for number in one.group_of}
        numbers = [number for number in numbers if number in stepped]
    own: Shapes = {sharded.names[number]: sharded.shapes[number] for number in numbers}
    there: Shapes = {name: saved.shape_of(name) for name in saved.names if name in own}
    check_model(there, own, where, strict=True)


def restore(
    sharded: ShardedModel, masters: Sequence[MasterParameters], parts: Sequence[Part]
) -> None:
    """Takes masters and, with ``masters``, the optimizers' state from ``parts``. Collective.
    Whether they are this model's and these optimizers' is the caller's to check.
    """
    saved = SavedParts(parts)
    settings = iter(parts[0]["param_groups"] if masters else ())
    for one in masters:
        one.take_settings(list(itertools.islice(settings, len(one.original_groups))))
    flats = sharded.store.masters()
    for piece in sharded.store.pieces():
        name = sharded.names[piece.parameter]
        if name not in saved:
            continue  # the optimizer does not step it
        values = saved.values_of(name, piece.start, piece.elements)
        master = values.pop("master", None)
        if master is not None:
            flats[piece.arena].narrow(0, piece.offset, piece.elements).copy_(master)
        for one in masters:
            one.put_piece(piece, values, saved.scalars_of(name))
    sharded.store.publish()
