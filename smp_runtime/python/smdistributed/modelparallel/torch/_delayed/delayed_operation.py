# SPDX-License-Identifier: Apache-2.0
"""Operations on tensors without storage, to be done later on tensors that have it: as notes, also
of what torch does other than by operations on them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from smdistributed.modelparallel.torch.state_mod import holding


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


_ASSIGN = torch.Tensor.__setitem__
_IS_META = torch.Tensor.is_meta.__get__  # type: ignore[attr-defined]
Note = Callable[[Any, torch.Tensor, tuple[Any, ...], dict[str, Any]], None]


class _Operations(TorchFunctionMode):
    """Has torch do by operations what it would leave out: since 2.15 the functions of
    ``torch.nn.init`` return at once where a tensor ``is_meta``, and before, the number of
    ``tensor[0] = 1`` is lost."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func == _IS_META and sys._getframe(1).f_globals.get("__name__") == nn.init.__name__:
            return False
        if func == _ASSIGN and args[0].device.type == "meta" and not torch.is_tensor(args[2]):
            args = (args[0], args[1], torch.tensor(args[2], dtype=args[0].dtype))
        return func(*args, **(kwargs or {}))


@contextmanager
def noted_init(note: Note) -> Iterator[None]:
    """Inside, the operations on tensors are those on tensors with storage. ``note`` gets what
    cannot be noted by its operations: draws that are repeated until all are within bounds."""
    own = nn.init._no_grad_trunc_normal_

    def noted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if tensor.device.type != "meta":
            return own(tensor, *args, **kwargs)
        note(own, tensor, args, kwargs)
        return tensor

    with holding(nn.init, _no_grad_trunc_normal_=noted), _Operations():
        yield
