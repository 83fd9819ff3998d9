# SPDX-License-Identifier: Apache-2.0
"""Writer and reader of DCP for folders: checkpoints are there whole or not at all, and are compared
with their sums when they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from smdistributed.modelparallel.checkpoint import StorageReader, StorageWriter
from smdistributed.sagemaker.distributed.checkpoint.s3_filesystem import refuse_s3

Hook = Callable[["DistributedFileSystemWriter"], None]


class DistributedFileSystemWriter(StorageWriter):
    """``StorageWriter`` of ``smdistributed.modelparallel.checkpoint``; other arguments are those of
    DCP's ``FileSystemWriter``.

    Args:
        path: a folder that all hosts share.
        pre_write_hooks, post_write_hooks: called with this writer before and after a rank has
            written its data.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        pre_write_hooks: Sequence[Hook] = (),
        post_write_hooks: Sequence[Hook] = (),
        **options: Any,
    ) -> None:
        refuse_s3(path)
        super().__init__(path, *args, **options)
        self._before, self._after = pre_write_hooks, post_write_hooks
        self.is_coordinator = False

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_coordinator = is_coordinator
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        for hook in self._before:
            hook(self)
        written = super().write_data(plan, planner)
        for hook in self._after:
            hook(self)
        return written


class DistributedFileSystemReader(StorageReader):
    """``StorageReader`` of ``smdistributed.modelparallel.checkpoint``."""

    def __init__(self, path: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        refuse_s3(path)
        super().__init__(path, *args, **options)


def path_to_file_system(path: str | os.PathLike[str]) -> FileSystem:
    """What DCP reads and writes the files of ``path`` by."""
    refuse_s3(path)
    return FileSystem()
