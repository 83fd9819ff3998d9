# SPDX-License-Identifier: Apache-2.0
"""Writer and reader for ``torch.distributed.checkpoint`` (DCP) that any script may use."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import EnumMeta
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import torch
from torch.distributed.checkpoint.filesystem import (
    DEFAULT_SUFFIX,
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
    _StoragePrefix,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from smdistributed import _runtime
from smdistributed.modelparallel.torch._files.dcp_folder import METADATA
from smdistributed.modelparallel.torch._files.dcp_places import FolderPlace, Place, readable
from smdistributed.modelparallel.torch._files.digests import (
    DIGESTS,
    Digests,
    compare,
    read_digests,
    write_digests,
)
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_OF_RESULT = "smp_digests"  # attribute by which a rank's sums come to the coordinator


class StorageWriter(FileSystemWriter):
    """DCP's ``FileSystemWriter``, whose checkpoints are there whole or not at all.

    Files are written beside their place, flushed, and appear there by one rename; a save that
    fails or is killed leaves the checkpoint before it as it was, and a next save removes what is
    left of it. ``smp_digests.json`` in the folder has the sum of each file, which ``StorageReader``
    and ``train --verify`` compare with. DCP's own reader reads the folder, too.

    All ranks have to see the same folder. Takes the arguments of ``FileSystemWriter``;
    ``overwrite`` allows a checkpoint of that name to be replaced.

    >>> import tempfile, torch
    >>> import torch.distributed.checkpoint as dcp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = f"{folder}/step_1"
    ...     metadata = dcp.save({"a": torch.ones(2)}, storage_writer=StorageWriter(target))
    ...     content = {"a": torch.zeros(2)}
    ...     dcp.load(content, storage_reader=StorageReader(target))
    ...     content, sorted(os.listdir(target))
    ({'a': tensor([1., 1.])}, ['.metadata', '__0_0.distcp', 'smp_digests.json'])
    """

    def __init__(self, path: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        super().__init__(path, *args, **{**options, "sync_files": False})  # commits flush
        self._files = _AtomicFiles()
        self.fs = self._files
        self._count = 0  # of new_file()
        self._go_to(path)

    def place_of(self, path: str | os.PathLike[str]) -> Place:
        """Where checkpoints of that name are."""
        return FolderPlace(Path(path))

    def _go_to(self, path: str | os.PathLike[str]) -> None:
        self._place = self.place_of(path)
        self.path = self._place.staging

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset()
        if checkpoint_id:
            self._go_to(checkpoint_id)

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self._place.target

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=str(self._place.target), save_id=self.save_id)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self.use_collectives:
            raise SMPCheckpointError(
                "StorageWriter takes saves of which one rank writes .metadata; got "
                "use_collectives=False"
            )
        self._place.check()
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        if not self.overwrite and self._place.exists():
            raise SMPCheckpointError(
                f"there is a checkpoint in {self._place.target}, and overwrite is False"
            )
        self._place.begin()
        begin = self._place.prefix
        return [
            replace(plan, storage_data=_StoragePrefix(begin + plan.storage_data.prefix))
            for plan in super().prepare_global_plan(plans)
        ]

    @contextmanager
    def new_file(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Another file of a save that one process writes by itself: its name, and what to write
        it by. Call it between ``prepare_global_plan`` and ``finish``."""
        name = f"__0_{self._count}{DEFAULT_SUFFIX}"
        self._count += 1
        with self._files.create_stream(Path(self.path) / name, "wb") as stream:
            yield name, cast(IO[bytes], stream)

    def give_up(self) -> None:
        """Removes what such a save has written."""
        self._place.give_up()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self._place.enter(plan.storage_data.prefix.rpartition("__")[0])
        self._files.digests.clear()
        written = super().write_data(plan, planner)
        results = written.wait()
        digests = self._files.digests
        self._place.take([str(file.relative_to(self.path)) for file in digests])
        if results:
            of_files = {file.name: digest for file, digest in digests.items()}
            object.__setattr__(results[0], _OF_RESULT, of_files)
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        written = self._files.digests.items()
        digests = {file.name: one for file, one in written if file.name.endswith(DEFAULT_SUFFIX)}
        for one in (one for of_rank in results for one in of_rank):
            digests.update(getattr(one, _OF_RESULT, {}))
        write_digests(Path(self.path) / self._place.prefix / DIGESTS, digests)
        self._place.publish()


class StorageReader(FileSystemReader):
    """DCP's ``FileSystemReader``, which compares the files that a rank reads with their sums, where
    the folder has any, and runs nothing that ``.metadata`` holds.

    Raises SMPCheckpointError, naming the file, for one that is cut off, missing, damaged or of
    another save.
    """

    def __init__(self, path: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        super().__init__(path, *args, **options)
        self.path = readable(Path(path))

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        self.path = readable(Path(self.path))

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        file = self.fs.concat_path(self.path, METADATA)
        try:
            with self.fs.create_stream(file, "rb") as stream:
                metadata = _MetadataUnpickler(cast(IO[bytes], stream)).load()
        except FileNotFoundError as error:
            raise SMPCheckpointError(f"there is no checkpoint of DCP in {self.path}") from error
        except SMPCheckpointError as error:
            raise SMPCheckpointError(f"cannot read {file}: {error}") from error
        except Exception as error:  # damaged pickles raise errors of any type
            raise SMPCheckpointError(f"cannot read {file}: it is damaged: {error}") from error
        if not isinstance(metadata, Metadata):
            raise SMPCheckpointError(f"cannot read {file}: it is no .metadata of DCP")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        names = {self.storage_data[item.storage_index].relative_path for item in plan.items}
        self._check(sorted(names))
        return super().read_data(plan, planner)

    def _check(self, names: Sequence[str]) -> None:
        """Compares the files with their sums, as far as there are any."""
        folder = Path(self.path)
        for name, digest in self.digests_of(names).items():
            try:
                compare(folder / name, *digest)
            except BadFile as error:
                raise SMPCheckpointError(f"{folder / name} {error}") from error
            except FileNotFoundError as error:
                raise SMPCheckpointError(f"{folder / name} is missing") from error

    def digests_of(self, names: Sequence[str]) -> Digests:
        """Sums of the files, which are beside them, as far as there are any."""
        found: Digests = {}
        for folder in sorted({PurePosixPath(name).parent for name in names}):
            digests = self._read_digests(str(folder / DIGESTS))
            found |= {str(folder / name): one for name, one in digests.items()}
        return {name: found[name] for name in names if name in found}

    def _read_digests(self, name: str) -> Digests:
        file = Path(self.path) / name
        try:
            return read_digests(file)
        except BadFile as error:
            raise SMPCheckpointError(f"{file} {error}") from error


class _AtomicFiles(FileSystem):
    """Files that are there whole or not at all, with the sums of those that were written."""

    def __init__(self) -> None:
        self.digests: dict[Path, tuple[int, int]] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        file = _runtime.AtomicFile(Path(path))
        yield cast(io.IOBase, _Stream(file))
        digest = file.commit()
        self.digests[Path(path)] = digest.bytes, digest.crc32c


class _Stream(io.RawIOBase):
    def __init__(self, file: _runtime.AtomicFile) -> None:
        super().__init__()
        self._file, self._place = file, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def write(self, data: Any) -> int:
        self._file.write(data)
        count = memoryview(data).nbytes
        self._place += count
        return count


class _MetadataUnpickler(pickle.Unpickler):
    """Makes what .metadata consists of, and no other object."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = _CLASSES.get(module)
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if allowed is None or name not in allowed:
            raise SMPCheckpointError(f"it holds {module}.{name}, which could run code")
        return super().find_class(module, name)


def _member(kind: Any, name: str) -> Any:
    """A member of an enumeration, which pickles ask for by getattr()."""
    if isinstance(kind, EnumMeta):
        return kind[name]
    raise SMPCheckpointError("it asks for an attribute of an object, which could run code")


_CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata",
        "ChunkStorageMetadata", "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "PurePosixPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath"},
}  # fmt: skip
