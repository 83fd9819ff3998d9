# SPDX-License-Identifier: Apache-2.0
"""Values under their names from before modules were replaced, each made when it is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.saved_states import with_tied
from smdistributed.modelparallel.torch._sharding.value_sources import ValueSources, place_of
from smdistributed.modelparallel.torch.ports import Translation


@dataclass(frozen=True)
class PlainEntry:
    """An entry under its name from before modules were replaced."""

    like: torch.Tensor
    """Its shape and type, without storage."""
    sources: tuple[str, ...]
    """The entries of the model, whole, that it is made of."""
    is_source: bool
    """True if it is its only source, under its own or another name."""


def plain_entries(
    likes: Mapping[str, torch.Tensor],
    tied: Mapping[str, str],
    to_plain: Translation,
    order: Iterable[str],
) -> tuple[dict[str, PlainEntry], dict[str, str]]:
    """What ``to_plain`` makes of entries like ``likes``, in the order of the names ``order``; a
    parameter with several names, which ``tied`` gives with the first one, under one of them. Then
    the other names, each with that.

    >>> like = torch.empty(2, device="meta")
    >>> made, others = plain_entries({"a": like}, {"b": "a"}, dict, ["b", "a"])
    >>> [(name, one.sources, one.is_source) for name, one in made.items()], others
    ([('b', ('a',), True)], {'a': 'b'})
    """
    with ValueSources(likes) as sources:
        made = to_plain(with_tied(likes, tied))
    names = [*(name for name in order if name in made), *made]
    given = {place_of(like) for like in likes.values()}
    number = {source: place for place, source in enumerate(likes)}
    seen: dict[Any, str] = {}
    found: dict[str, PlainEntry] = {}
    others: dict[str, str] = {}
    for name in dict.fromkeys(names):
        value = made[name]
        place = place_of(value)
        first = seen.setdefault(place, name)
        if first == name:
            ordered = tuple(sorted(sources.of(value), key=number.__getitem__))
            found[name] = PlainEntry(value, ordered, place in given)
        else:
            others[name] = first
    return found, others


class PlainValues(ABC):
    """``to_plain`` of whole values of a model, or of what is kept for each of its parameters, whose
    shapes and types are ``likes``; the other names of tied parameters are ``tied``."""

    def __init__(
        self,
        likes: Mapping[str, torch.Tensor],
        tied: Mapping[str, str],
        to_plain: Translation,
        order: Sequence[str] = (),
    ) -> None:
        self._tied, self._to_plain = tied, to_plain
        self.is_ordered = bool(order)
        """True if the order of entries is the plain model's, whatever that of the given ones."""
        self.entries, self.tied = plain_entries(likes, tied, to_plain, order)
        """By name, first those in ``order``, tied ones once; and the other names of these."""

    @abstractmethod
    def value(self, name: str) -> torch.Tensor | None:
        """One of the entries; None where another rank has it."""

    def made(self, name: str, sources: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """An entry from its sources."""
        if self.entries[name].is_source:
            (value,) = sources.values()
            return value
        made: torch.Tensor = self._to_plain(with_tied(sources, self._tied))[name]
        return made
