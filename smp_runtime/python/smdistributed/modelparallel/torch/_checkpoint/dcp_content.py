# SPDX-License-Identifier: Apache-2.0
"""A model and the state of its optimizer as the state dict that a plain script passes to
``torch.distributed.checkpoint`` (DCP), whose values come one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch

from smdistributed.modelparallel.torch._checkpoint.plain_values import PlainEntry, PlainValues
from smdistributed.modelparallel.torch._state.streamed_states import KeptState
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError

STATE, GROUPS = "state", "param_groups"
_FILE_BYTES = 5 * 10**9


class DcpContent:
    """What a plain script passes to ``dcp.save``, from plain values. Keys are paths into
    ``content``, separated by dots."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        """The state dict, with tensors without storage in the place of values."""
        self._values: dict[str, tuple[PlainValues, str]] = {}
        self._model: Mapping[str, PlainEntry] = {}
        self._is_ordered = False

    def add_model(self, values: PlainValues, key: str) -> None:
        """Adds entries of the model, tied ones under all their names."""
        self._model, self._is_ordered = values.entries, values.is_ordered
        place = _place(self.content, key)
        for name in [*values.entries, *values.tied]:
            self._add(place, key, name, values, values.tied.get(name, name))

    def add_optimizer(
        self, kept: KeptState, values_of: Callable[[str], PlainValues], key: str
    ) -> None:
        """Adds what is kept for parameters of the model, which is there; ``values_of`` gives that
        of a field."""
        stepped = {name for _, names in kept.groups for name in names}
        plain = {name: entry for name, entry in self._model.items()
                 if stepped.intersection(entry.sources)}  # fmt: skip
        place = _place(self.content, key)
        held = place.setdefault(STATE, {})
        for name, entry in plain.items():
            held[name] = _of_sources(name, entry, kept.others)
        for field in kept.fields:
            values = values_of(field)
            for name in values.entries:
                path = ".".join(filter(None, (key, STATE, name)))
                self._add(held[name], path, field, values, name)
        found = _plain_groups(plain, kept.groups, self._is_ordered)
        groups = [({key: plain_number(value) for key, value in settings.items()}, names)
                  for settings, names in found]  # fmt: skip
        place[GROUPS] = [{**settings, "params": names} for settings, names in groups]
        for settings, names in groups:  # as with flatten_optimizer_state_dict=True
            for name in names:
                if not name.isdigit():  # which is a number in the list
                    place |= {f"{GROUPS}.{name}.{one}": value for one, value in settings.items()}

    def _add(
        self, place: dict[str, Any], path: str, key: str, values: PlainValues, name: str
    ) -> None:
        place[key] = values.entries[name].like
        self._values[f"{path}.{key}" if path else key] = values, name

    def files(self) -> list[list[str]]:
        """Flat names of the values, in the order in which they are taken, by file: of at most 5 GB,
        or one value."""
        found: list[list[str]] = []
        size = _FILE_BYTES
        for name in self._values:
            like = self.like(name)
            if size + like.nbytes > _FILE_BYTES:
                found.append([])
                size = 0
            found[-1].append(name)
            size += like.nbytes
        return found

    @property
    def names(self) -> list[str]:
        """Flat names of the values that are not taken yet, in order."""
        return list(self._values)

    def like(self, name: str) -> torch.Tensor:
        """Shape and type of a value that is not taken yet."""
        values, entry = self._values[name]
        return values.entries[entry].like

    def take(self, name: str) -> torch.Tensor | None:
        """One of the values; None where another rank has it. Each is taken once, by all ranks in
        the same order."""
        values, entry = self._values.pop(name)  # what it is made from goes with the last
        return values.value(entry)


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


def plain_number(value: Any) -> Any:
    """Python's own number for one of numpy, as schedulers leave them.

    >>> plain_number(numpy.float64(0.5)), plain_number((1, 2))
    (0.5, (1, 2))
    """
    return value.item() if isinstance(value, numpy.generic) else value


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True for the same keys and values.

    >>> same({"step": torch.tensor(1.0)}, {"step": 1.0}), same({"step": 1}, {})
    (True, False)
    """
    return one.keys() == other.keys() and all(
        bool(value == other[key]) for key, value in one.items()
    )


def _plain_groups(
    plain: Mapping[str, PlainEntry],
    groups: Sequence[tuple[dict[str, Any], Sequence[str]]],
    is_ordered: bool,
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Settings of each group, and the plain names of its parameters."""
    number_of = {name: number for number, (_, names) in enumerate(groups) for name in names}
    members: list[list[str]] = [[] for _ in groups]
    place = {name: number for number, name in enumerate(number_of)}
    first = {name: min(place.get(source, len(place)) for source in entry.sources)
             for name, entry in plain.items()}  # fmt: skip
    # Of a plain model that is not known, the order is the optimizer's.
    for name in plain if is_ordered else sorted(plain, key=first.__getitem__):
        entry = plain[name]
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
