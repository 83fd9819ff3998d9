# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts under the names of this model, translated as far as they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from smdistributed.modelparallel.torch._sharding.value_sources import ValueSources, place_of
from smdistributed.modelparallel.torch._slices.parameter_slices import slice_of
from smdistributed.modelparallel.torch._state.state_fit import shapes_of
from smdistributed.modelparallel.torch.ports import Translation


class _Origin(NamedTuple):
    """``name``: that which the translation gives an entry, which another one may be tied to."""

    name: str
    sources: frozenset[str]
    given: Any
    """The source itself, where nothing is computed."""


class OwnEntries(Mapping[str, Any]):
    """``translate(entries)``, of which an entry is computed when it is looked at, from those that
    it takes, and is this rank's slice along its axis of ``axes``.

    ``tied`` are other names of parameters, with the first ones: where a state dict has one of
    several names, the others have its value. ``likes`` are tensors of ``entries`` without storage,
    given where to look at these reads them. ``shapes`` are those of the whole values.

    >>> entries = {"a": torch.zeros(2), "b": torch.ones(2)}
    >>> made = OwnEntries(entries, lambda given: {k.upper(): -v for k, v in given.items()}, {})
    >>> list(made), made["B"], made.shapes["A"]
    (['A', 'B'], tensor([-1., -1.]), (2,))
    """

    def __init__(
        self,
        entries: Mapping[str, Any],
        translate: Translation,
        axes: Mapping[str, int],
        tied: Mapping[str, str] | None = None,
        likes: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._entries, self._translate, self._axes = entries, translate, axes
        if likes is None:
            likes = likes_of(entries)
        tensors = {key: like for key, like in likes.items() if isinstance(like, torch.Tensor)}
        with ValueSources(tensors) as sources:
            made = translate(likes)
        keys = {_identity(like): key for key, like in likes.items()}
        self._origins = {
            key: _Origin(key, sources.of(value), keys.get(_identity(value)))
            for key, value in made.items()
        }
        pairs = list((tied or {}).items())
        for name, other in [*((first, name) for name, first in pairs), *pairs]:
            if name not in made and other in made:
                self._origins[name], made[name] = self._origins[other], made[other]
        self.shapes = shapes_of(made)
        self._held: tuple[frozenset[str], Mapping[str, Any]] = (frozenset(), {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)

    def __contains__(self, key: object) -> bool:
        return key in self._origins

    def sources(self, key: str) -> frozenset[str]:
        """The entries that one is computed from."""
        return self._origins[key].sources

    def __getitem__(self, key: str) -> Any:
        # Slices are copies, so that they do not keep the memory of the whole.
        origin, axis = self._origins[key], self._axes.get(key)
        if origin.given is not None:
            given = self._entries[origin.given]
            return given if axis is None else slice_of(given, axis).clone()
        if self._held[0] != origin.sources or origin.name not in self._held[1]:
            needed = {name: self._entries[name] for name in origin.sources or self._entries}
            self._held = (origin.sources, self._translate(needed))
        value = self._held[1][origin.name]
        return value if axis is None else slice_of(value, axis).clone()


def likes_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries, with tensors of the same shapes and types without storage."""
    return {
        key: torch.empty(value.shape, dtype=value.dtype, device="meta")
        if isinstance(value, torch.Tensor) else value
        for key, value in entries.items()
    }  # fmt: skip


def _identity(value: Any) -> Any:
    return place_of(value) if isinstance(value, torch.Tensor) else id(value)
