# SPDX-License-Identifier: Apache-2.0
"""Writer and reader of DCP for folders and for prefixes in S3: checkpoints are there whole or not
at all, and are compared with their sums when they are read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from smdistributed.modelparallel.checkpoint import StorageReader, StorageWriter
from smdistributed.modelparallel.torch._files.dcp_places import Place
from smdistributed.modelparallel.torch._files.digests import DIGESTS, Digests, read_digests
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.sagemaker._s3_objects import NoSuchObject, S3Objects
from smdistributed.sagemaker.distributed.checkpoint.s3_filesystem import S3FileSystem, is_s3_uri
from smdistributed.sagemaker.distributed.checkpoint.s3_place import S3Place

Hook = Callable[["DistributedFileSystemWriter"], None]


class DistributedFileSystemWriter(StorageWriter):
    """``StorageWriter`` of ``smdistributed.modelparallel.checkpoint``, also for S3: files wait in
    the folder for temporary ones (``TMPDIR``) until they are uploaded. Other arguments are those of
    DCP's ``FileSystemWriter``.

    Args:
        path: a folder that all hosts share, or ``s3://bucket/prefix``.
        pre_write_hooks, post_write_hooks: called with this writer before and after a rank has
            written its data.
        s3_region, s3client_config: as in ``save``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        pre_write_hooks: Sequence[Hook] = (),
        post_write_hooks: Sequence[Hook] = (),
        s3_region: str | None = None,
        s3client_config: Any = None,
        **options: Any,
    ) -> None:
        self._s3 = s3_region, s3client_config
        super().__init__(path, *args, **options)
        self._before, self._after = pre_write_hooks, post_write_hooks
        self.is_coordinator = False

    def place_of(self, path: str | os.PathLike[str]) -> Place:
        if is_s3_uri(path):
            return S3Place(str(path), S3Objects(*self._s3))
        return super().place_of(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_s3_uri(checkpoint_id) or super().validate_checkpoint_id(checkpoint_id)

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
    """``StorageReader`` of ``smdistributed.modelparallel.checkpoint``, also for S3: each object is
    downloaded to the folder for temporary files, compared and removed when it is read.

    Args:
        path: a folder, or ``s3://bucket/prefix``.
        s3_region, s3client_config: as in ``save``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        s3_region: str | None = None,
        s3client_config: Any = None,
        **options: Any,
    ) -> None:
        self._s3 = s3_region, s3client_config
        super().__init__(path, *args, **options)
        self._read_from(path)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        path = checkpoint_id or self.path
        self.fs = FileSystem()
        super().reset(path)
        self._read_from(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_s3_uri(checkpoint_id) or super().validate_checkpoint_id(checkpoint_id)

    def _read_from(self, path: str | os.PathLike[str]) -> None:
        self.fs = path_to_file_system(path, *self._s3)
        if is_s3_uri(path):
            self.path = self.fs.init_path(path)

    def _check(self, names: Sequence[str]) -> None:
        if not isinstance(self.fs, S3FileSystem):
            super()._check(names)
            return
        found = self.digests_of(names)
        for name in names:
            if name not in found and "/" in name:  # of DistributedFileSystemWriter
                raise SMPCheckpointError(f"there is no sum of {self.path}/{name} beside it")
        # Objects are compared when they are there.
        self.fs.digests = {self.fs.concat_path(self.path, name): found[name] for name in found}

    def _read_digests(self, name: str) -> Digests:
        if not isinstance(self.fs, S3FileSystem):
            return super()._read_digests(name)
        with tempfile.TemporaryDirectory(prefix="smp-s3-") as folder:
            file, address = Path(folder) / DIGESTS, self.fs.concat_path(self.path, name)
            try:
                self.fs.objects.get(address, file)
                return read_digests(file)
            except NoSuchObject:
                return {}
            except BadFile as error:
                raise SMPCheckpointError(f"{address} {error}") from error


def path_to_file_system(
    path: str | os.PathLike[str], s3_region: str | None = None, s3client_config: Any = None
) -> FileSystem:
    """What DCP reads and writes the files of ``path`` by."""
    return S3FileSystem(S3Objects(s3_region, s3client_config)) if is_s3_uri(path) else FileSystem()
