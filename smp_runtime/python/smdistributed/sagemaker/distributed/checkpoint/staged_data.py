# SPDX-License-Identifier: Apache-2.0
"""Copies of what a save has to write, so that training goes on while they are written."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner


class StagingMemory:
    """Memory of the CPU for copies, kept from one save for the next: new memory takes longer to get
    than to fill. What tensors of a GPU are copied to is pinned.

    >>> memory = StagingMemory()
    >>> first = memory.copy_of(torch.ones(3))
    >>> memory.keep([first])
    >>> memory.copy_of(torch.zeros(3)).data_ptr() == first.data_ptr()
    True
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, bool], list[torch.Tensor]] = {}

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, that nobody else has."""
        key = tensor.nbytes, tensor.is_cuda
        kept = self._free.get(key)
        block = kept.pop() if kept else torch.empty(key[0], dtype=torch.uint8, pin_memory=key[1])
        copied = block.view(tensor.dtype).view(tensor.shape)
        return copied.copy_(tensor.detach())

    def keep(self, copies: list[torch.Tensor]) -> None:
        """Keeps the memory of copies that nobody needs any more, in the place of what it has."""
        self._free = {}
        for one in copies:
            block = one.view(-1).view(torch.uint8)
            self._free.setdefault((one.nbytes, one.is_pinned()), []).append(block)


class StagedData:
    """Copies of what a plan has this rank write; of sharded tensors its own pieces alone. It stands
    in the place of the plan's planner then."""

    def __init__(self, plan: SavePlan, planner: SavePlanner, memory: StagingMemory) -> None:
        self._memory = memory
        self._copies: list[torch.Tensor] = []
        self._data = [self._staged(planner.resolve_data(item)) for item in plan.items]
        self._place = {item.index: place for place, item in enumerate(plan.items)}

    def _staged(self, data: Any) -> Any:
        if not isinstance(data, torch.Tensor):
            return data  # bytes, made of the object just now
        self._copies.append(self._memory.copy_of(data))
        return self._copies[-1]

    def resolve_data(self, item: Any) -> Any:
        return self._data[self._place[item.index]]

    def give_back(self) -> None:
        """Lets the next save have the memory, when all is written."""
        self._memory.keep(self._copies)
        self._data.clear()
