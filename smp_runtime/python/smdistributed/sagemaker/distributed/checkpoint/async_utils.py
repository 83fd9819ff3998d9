# SPDX-License-Identifier: Apache-2.0
"""Saves that run beside training, in the order in which they were begun."""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from smdistributed.sagemaker.distributed.checkpoint.save_parts import SaveParts
from smdistributed.sagemaker.logger import get_logger


@dataclass
class _Call:
    index: int
    target: str
    parts: SaveParts


class AsyncCallsQueue:
    """Saves of one kind. A save is a checkpoint only when ``maybe_finalize_async_calls`` has
    returned its index.

    >>> AsyncCallsQueue().maybe_finalize_async_calls()
    []
    """

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque()
        self._count = 0
        self._finished: list[int] = []  # and not told yet
        _queues.add(self)

    def add(self, target: str, parts: SaveParts) -> int:
        """Appends a save, the data of which is being written. Returns its index."""
        self._calls.append(_Call(self._count, target, parts))
        self._count += 1
        return self._calls[-1].index

    def finish_those_of(self, target: str) -> None:
        """Finishes saves into the same folder, which a new one would write over."""
        if any(call.target == target for call in self._calls):
            self._finish(waits=True)

    def get_num_unfinalized_calls(self) -> int:
        return len(self._calls)

    def maybe_finalize_async_calls(
        self,
        blocking: bool = True,
        process_group: dist.ProcessGroup | None = None,
        skip_sync: bool = False,
    ) -> list[int]:
        """Makes checkpoints of the saves whose data is written. The ranks of a save call it
        together.

        Args:
            blocking: wait for all saves; else those that some rank still writes are left for the
                next call.
            process_group: ranks to agree with; each save knows its own, so it may be left out.
            skip_sync: the same as ``blocking``: ranks that wait need not ask each other.

        Returns:
            Indices of the saves that are checkpoints now, each once.

        Raises:
            CheckpointException: a save failed on some rank; it is over then, and the checkpoint
                that was there before stays.
        """
        self._finish(waits=blocking or skip_sync)
        finished, self._finished = self._finished, []
        return finished

    def _finish(self, waits: bool) -> None:
        while self._calls and (waits or self._calls[0].parts.is_written_everywhere()):
            call = self._calls.popleft()
            call.parts.finish()
            self._finished.append(call.index)

    def warn_of_unfinished(self) -> None:
        for call in self._calls:
            get_logger().warning(
                "the save into %s was never finished, and is no checkpoint: call "
                "maybe_finalize_async_calls(blocking=True) at the end of the script",
                call.target,
            )


_queues: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _warn_at_exit() -> None:
    for queue in _queues:
        queue.warn_of_unfinished()
