# SPDX-License-Identifier: Apache-2.0
"""Tensors from which other tensors were computed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class ValueSources(TorchDispatchMode):
    """Notes inside which of the ``given`` tensors each tensor was computed from. Tensors without
    storage are enough.

    >>> given = {name: torch.empty(2, device="meta") for name in "abc"}
    >>> with ValueSources(given) as sources:
    ...     made = torch.cat([given["a"], given["b"].neg()])
    >>> sorted(sources.of(made)), sorted(sources.of(given["c"]))
    (['a', 'b'], ['c'])
    """

    def __init__(self, given: Mapping[Any, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of: dict[int, frozenset[Hashable]] = {}
        self._kept: list[torch.Tensor] = []  # so that no number is used twice
        for key, tensor in given.items():
            self._note(tensor, self.of(tensor) | {key})

    def of(self, tensor: Any) -> frozenset[Any]:
        """The keys of those that ``tensor`` was computed from; none for what is no tensor."""
        return self._of.get(id(tensor), frozenset())

    def _note(self, tensor: torch.Tensor, sources: frozenset[Hashable]) -> None:
        self._of[id(tensor)] = sources
        self._kept.append(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = [self.of(leaf) for leaf in tree_leaves((args, kwargs))]
        sources = frozenset[Hashable]().union(*read)
        for leaf in tree_leaves(result):
            if sources and isinstance(leaf, torch.Tensor):
                self._note(leaf, self.of(leaf) | sources)
        return result


def place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for two tensors that are the same elements of the same memory, also where there is no
    memory yet.

    >>> whole = torch.empty(4, device="meta")
    >>> place_of(whole) == place_of(whole.chunk(1)[0]), place_of(whole) == place_of(whole[1:])
    (True, False)
    """
    memory = tensor.untyped_storage()._cdata
    return memory, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
