# SPDX-License-Identifier: Apache-2.0
"""One operation on tensors without storage, to be done later on tensors that have it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclass(frozen=True)
class Place:
    """A tensor without storage, as part of a storage by number."""

    storage: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    bytes: int


@dataclass
class Operation:
    function: Any
    args: Any
    kwargs: dict[str, Any]
    results: list[Place | None]
    random: bool
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


def is_random(function: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in function.tags


def run_operation(operation: Operation, made: dict[int, torch.UntypedStorage]) -> None:
    def real(place: Place) -> torch.Tensor:
        if place.storage not in made:
            made[place.storage] = torch.empty(place.bytes, dtype=torch.uint8).untyped_storage()
        empty = torch.empty(0, dtype=place.dtype)
        return empty.set_(made[place.storage], place.offset, place.size, place.stride)

    args = tree_map_only(Place, real, operation.args)
    kwargs = tree_map_only(Place, real, operation.kwargs)
    result = operation.function(*args, **kwargs)
    for place, value in zip(operation.results, tree_leaves(result), strict=True):
        if place is not None and place.storage not in made:
            made[place.storage] = value.untyped_storage()
