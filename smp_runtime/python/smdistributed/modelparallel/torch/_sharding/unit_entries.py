# SPDX-License-Identifier: Apache-2.0
"""State-dict entries of a module whose parameters are shards, and what is kept for these, one unit
after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch._sharding.substitutes import (
    shapes_only,
    substituted,
    with_values,
)
from smdistributed.modelparallel.torch._sharding.value_sources import ValueSources
from smdistributed.modelparallel.torch.ports import Sharded


class UnitEntries(Mapping[str, Any]):
    """The entries that ``state_dict()`` of ``module`` has where all its values are there.

    An entry of shards is whole, on the CPU. To get it is collective over the shard group, all of
    whose ranks get the same entries in the same order. The values of one unit are held, those of
    the last entry, or of several where a hook of the module makes one entry of several parameters.
    """

    def __init__(
        self, module: nn.Module, sharded: ShardedModel, state_dict: Callable[[], dict[str, Any]]
    ) -> None:
        self._module, self._sharded, self._state_dict = module, sharded, state_dict
        without_values = shapes_only(sharded.parameters)
        unit_of = sharded.store.unit_of_parameters()
        given = {number: without_values[p] for number, p in enumerate(sharded.parameters)}
        with substituted(module, without_values), ValueSources(given) as sources:
            entries = state_dict()
        self._units: dict[str, frozenset[int]] = {
            key: frozenset(unit_of[number] for number in sources.of(value))
            if isinstance(value, torch.Tensor) else frozenset()
            for key, value in entries.items()
        }  # fmt: skip
        self._held: tuple[frozenset[int], dict[str, Any]] = (frozenset(), entries)
        self.held_bytes = 0
        """Of the values that are held."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, key: object) -> bool:
        return key in self._units

    def __getitem__(self, key: str) -> Any:
        needed, (units, entries) = self._units[key], self._held
        if not needed <= units:
            self._held = (frozenset(), {})  # before others are gathered
            units, entries = self._held = (needed, self._gathered(needed))
        return entries[key]

    def _gathered(self, units: frozenset[int]) -> dict[str, Any]:
        sharded = self._sharded
        by_name = dict(zip(sharded.names, sharded.parameters, strict=True))
        values = {by_name[name]: value for unit in sorted(units)
                  for name, value in sharded.whole_unit(unit)}  # fmt: skip
        self.held_bytes = sum(value.nbytes for value in values.values())
        by = {**shapes_only(sharded.parameters), **with_values(values)}
        with substituted(self._module, by):
            entries = self._state_dict()
        return {key: value for key, value in entries.items() if self._units[key] <= units}


class UnitValues(Mapping[str, torch.Tensor]):
    """Whole values by name of parameter, of ``arenas()``, which is called once, when one is looked
    at: what this rank has for its part of the masters, laid out as these. They are on the CPU. To
    get one is collective over the shard group, all of whose ranks get the same in the same order.
    The values of one unit are held.
    """

    def __init__(self, sharded: Sharded, arenas: Callable[[], Sequence[torch.Tensor]]) -> None:
        self._sharded, self._arenas = sharded, functools.cache(arenas)
        self._units = dict(zip(sharded.names, sharded.store.unit_of_parameters(), strict=True))
        self._held: tuple[int, dict[str, torch.Tensor]] = (-1, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, name: object) -> bool:
        return name in self._units

    def __getitem__(self, name: str) -> torch.Tensor:
        unit = self._units[name]
        if unit != self._held[0]:
            self._held = (-1, {})  # before others are gathered
            self._held = (unit, dict(self._sharded.whole_unit(unit, self._arenas())))
        return self._held[1][name]

    @property
    def held_bytes(self) -> int:
        """Of the values that are held."""
        return sum(value.nbytes for value in self._held[1].values())
