# SPDX-License-Identifier: Apache-2.0
"""A model and the state of its optimizer as the state dict that a plain script passes to
``torch.distributed.checkpoint`` (DCP), whose values are gathered one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.whole_entries import (
    PlainEntry,
    WholeEntries,
    whole_layouts,
)
from smdistributed.modelparallel.torch._sharding.unit_entries import UnitValues
from smdistributed.modelparallel.torch._state.optimizer_states import JobStates
from smdistributed.modelparallel.torch._state.streamed_states import StreamedState
from smdistributed.modelparallel.torch._state.tensor_states import EntryLayout
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.model import DistributedModel

STATE, GROUPS = "state", "param_groups"


class DcpContent:
    """``model_key`` and ``optimizer_key`` are paths into ``content``, separated by dots; errors
    begin with ``what``. Construction is collective over the job."""

    def __init__(self, what: str, model: DistributedModel, model_key: str) -> None:
        self._what, self._model = what, model
        self.content: dict[str, Any] = {}
        """The state dict, with tensors without storage in the place of gathered values."""
        self._gathered: dict[str, tuple[WholeEntries, str]] = {}
        own, self._layouts = model.streamed_entries(), whole_layouts(model, of_masters=True)
        if model.sharded is not None:
            masters = UnitValues(model.sharded, model.sharded.store.masters)
            own = _WithMasters(own, masters, self._layouts)
        entries = WholeEntries(what, model, self._layouts, own)
        self._plain = entries.entries
        place = _place(self.content, model_key)
        for name in [*self._plain, *entries.tied]:
            self._add(place, model_key, name, entries, entries.tied.get(name, name))

    def add_optimizer(self, optimizer_key: str) -> None:
        """Adds the state of the job's optimizers, as of one."""
        kept = StreamedState(JobStates().states)
        stepped = {name for _, names in kept.groups for name in names}
        plain = {name: entry for name, entry in self._plain.items()
                 if stepped.intersection(entry.sources)}  # fmt: skip
        place = _place(self.content, optimizer_key)
        held = place.setdefault(STATE, {})
        for name, entry in plain.items():
            held[name] = _of_sources(name, entry, kept.kept.others)
        for field, dtypes in kept.kept.fields.items():
            layouts = {name: dataclasses.replace(self._layouts[name], dtype=dtype)
                       for name, dtype in dtypes.items()}  # fmt: skip
            values = WholeEntries(self._what, self._model, layouts, kept.values(field))
            for name in values.entries:
                key = ".".join(filter(None, (optimizer_key, STATE, name)))
                self._add(held[name], key, field, values, name)
        groups = list(_plain_groups(plain, kept.groups))
        place[GROUPS] = [{**settings, "params": names} for settings, names in groups]
        for settings, names in groups:  # as with flatten_optimizer_state_dict=True
            for name in names:
                place |= {f"{GROUPS}.{name}.{key}": value for key, value in settings.items()}

    def _add(
        self, place: dict[str, Any], path: str, key: str, values: WholeEntries, name: str
    ) -> None:
        place[key] = values.entries[name].like
        self._gathered[f"{path}.{key}" if path else key] = values, name

    @property
    def names(self) -> list[str]:
        """Flat names of the gathered values, in the order in which they are taken."""
        return list(self._gathered)

    def take(self, name: str) -> torch.Tensor | None:
        """One of them, on global rank 0; None elsewhere. All ranks take each once, in order."""
        values, source = self._gathered.pop(name)  # what it is gathered from goes with the last
        sources = values.gathered(source)
        return None if sources is None else values.made(source, sources)


class _WithMasters(Mapping[str, Any]):
    """``entries`` with the values of ``masters`` where ``layouts`` says so."""

    def __init__(
        self, entries: Mapping[str, Any], masters: UnitValues, layouts: Mapping[str, EntryLayout]
    ) -> None:
        self._entries, self._masters, self._layouts = entries, masters, layouts

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> Any:
        return (self._masters if self._layouts[name].master else self._entries)[name]

    @property
    def held_bytes(self) -> int:
        """Of the values that are held."""
        return self._masters.held_bytes + int(getattr(self._entries, "held_bytes", 0))


def _of_sources(
    name: str, entry: PlainEntry, others: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What is kept for a parameter beside fields, from what is kept for those that it is made of.

    Raises SMPUnsupportedError where these differ.
    """
    first, *rest = [others.get(source, {}) for source in entry.sources]
    if not all(same(one, first) for one in rest):
        raise SMPUnsupportedError(
            f"{name} is made of several parameters, {', '.join(entry.sources)}, for which the "
            f"optimizer keeps different values: {first} and {rest}"
        )
    return dict(first)


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True for the same keys and values.

    >>> same({"step": torch.tensor(1.0)}, {"step": 1.0}), same({"step": 1}, {})
    (True, False)
    """
    return one.keys() == other.keys() and all(
        bool(value == other[key]) for key, value in one.items()
    )


def _plain_groups(
    plain: Mapping[str, PlainEntry], groups: Sequence[tuple[dict[str, Any], Sequence[str]]]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Settings of each group, and the plain names of its parameters."""
    number_of = {name: number for number, (_, names) in enumerate(groups) for name in names}
    members: list[list[str]] = [[] for _ in groups]
    for name, entry in plain.items():
        numbers = {number_of.get(source) for source in entry.sources}
        if len(numbers) > 1:
            raise SMPUnsupportedError(
                f"{name} is made of several parameters, {', '.join(entry.sources)}, which are not "
                "in one group of the optimizer"
            )
        members[next(iter(numbers)) or 0].append(name)
    return ((settings, names) for (settings, _), names in zip(groups, members, strict=True))


def _place(content: dict[str, Any], path: str) -> dict[str, Any]:
    """The dictionary at ``path`` in nested ones, which are made.

    >>> content = {}
    >>> _place(content, "app.model")["a"] = 1
    >>> _place(content, "")["b"] = 2
    >>> content
    {'app': {'model': {'a': 1}}, 'b': 2}
    """
    place = content
    for key in filter(None, path.split(".")):
        place = place.setdefault(key, {})
    return place
