# SPDX-License-Identifier: Apache-2.0
"""Objects of S3 as the files that DCP reads and writes."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from torch.distributed.checkpoint.filesystem import FileSystem

from smdistributed.modelparallel.torch._files.digests import Digests, compare
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.sagemaker._s3_objects import NoSuchObject, S3Objects, address_of, is_s3_uri

__all__ = ["S3FileSystem", "is_s3_uri"]


class S3FileSystem(FileSystem):
    """Objects, each of which is a file of the folder for temporary ones while it is read or
    written: it is there whole when it has been written. Paths are addresses."""

    def __init__(self, objects: S3Objects) -> None:
        self.objects = objects
        self.digests: Digests = {}
        """Sums of objects by their addresses; those that are read are compared with them."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        address = address_of(path)
        with tempfile.TemporaryDirectory(prefix="smp-s3-") as folder:
            file = Path(folder) / "object"
            if mode == "rb":
                self._fetch(address, file)
            with file.open(mode) as stream:
                yield cast(io.IOBase, stream)
            if mode != "rb":
                self.objects.put(file, address)

    def _fetch(self, address: str, file: Path) -> None:
        try:
            self.objects.get(address, file)
        except NoSuchObject as error:
            raise FileNotFoundError(str(error)) from error
        if address in self.digests:
            try:
                compare(file, *self.digests[address])
            except BadFile as error:
                raise SMPCheckpointError(f"{address} {error}") from error

    def init_path(self, path: str | os.PathLike[str]) -> str:
        return address_of(path)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        return f"{address_of(path)}/{suffix}"

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return address_of(path) in self.objects.addresses(address_of(path))

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return self.objects.addresses(address_of(path) + "/")

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Nothing: S3 has no folders."""

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        with self.create_stream(path, "rb") as old, self.create_stream(new_path, "wb") as new:
            while chunk := old.read(1 << 24):
                new.write(chunk)
        self.rm_file(path)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self.objects.remove(address_of(path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_s3_uri(checkpoint_id)
