# SPDX-License-Identifier: Apache-2.0
"""Writer and reader for ``torch.distributed.checkpoint`` (DCP) that any script may use."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from enum import EnumMeta
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch.distributed.checkpoint.filesystem import (
    DEFAULT_SUFFIX,
    FileSystem,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from smdistributed import _runtime
from smdistributed.modelparallel.torch._files.dcp_folder import METADATA
from smdistributed.modelparallel.torch._files.digests import (
    DIGESTS,
    compare,
    read_digests,
    write_digests,
)
from smdistributed.modelparallel.torch._files.disk import explained, sync
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
        self._target = Path(path)
        self.path = _staging(self._target)
        self._files = _AtomicFiles()
        self.fs = self._files
        self._count = 0  # of new_file()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        if checkpoint_id:
            self._target = Path(checkpoint_id)
        self.path = _staging(self._target)

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self._target

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=str(self._target), save_id=self.save_id)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self.use_collectives:
            raise SMPCheckpointError(
                "StorageWriter takes saves of which one rank writes .metadata; got "
                "use_collectives=False"
            )
        if (self._target / METADATA).exists() and not self.overwrite:
            raise SMPCheckpointError(
                f"there is a checkpoint in {self._target}, and overwrite is False"
            )
        with explained(f"cannot write the checkpoint {self._target}"):
            _refuse_others(self._target)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        with explained(f"cannot write the checkpoint {self._target}"):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            _bring_back(self._target)
            shutil.rmtree(self.path, ignore_errors=True)  # of a save that was killed
            Path(self.path).mkdir()
        return super().prepare_global_plan(plans)

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
        shutil.rmtree(self.path, ignore_errors=True)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if not Path(self.path).is_dir():
            raise SMPCheckpointError(
                f"this rank does not see {self.path}, which the first one has made; StorageWriter "
                "takes a folder that all hosts share"
            )
        self._files.digests.clear()
        written = super().write_data(plan, planner)
        results = written.wait()
        if results:
            object.__setattr__(results[0], _OF_RESULT, dict(self._files.digests))
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        written = self._files.digests.items()
        digests = {name: one for name, one in written if name.endswith(DEFAULT_SUFFIX)}
        for one in (one for of_rank in results for one in of_rank):
            digests.update(getattr(one, _OF_RESULT, {}))
        write_digests(Path(self.path) / DIGESTS, digests)
        with explained(f"cannot write the checkpoint {self._target}"):
            _publish(Path(self.path), self._target)


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
        file = Path(self.path) / METADATA
        try:
            with file.open("rb") as stream:
                metadata = _MetadataUnpickler(stream).load()
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
        folder = Path(self.path)
        names = {self.storage_data[item.storage_index].relative_path for item in plan.items}
        try:
            digests = read_digests(folder / DIGESTS)
        except BadFile as error:
            raise SMPCheckpointError(f"{folder / DIGESTS} {error}") from error
        for name in sorted(names & digests.keys()):
            try:
                compare(folder / name, *digests[name])
            except BadFile as error:
                raise SMPCheckpointError(f"{folder / name} {error}") from error
            except FileNotFoundError as error:
                raise SMPCheckpointError(f"{folder / name} is missing") from error
        return super().read_data(plan, planner)


class _AtomicFiles(FileSystem):
    """Files that are there whole or not at all, with the sums of those that were written."""

    def __init__(self) -> None:
        self.digests: dict[str, tuple[int, int]] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        file = _runtime.AtomicFile(Path(path))
        yield cast(io.IOBase, _Stream(file))
        digest = file.commit()
        self.digests[digest.name] = digest.bytes, digest.crc32c


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


def _refuse_others(target: Path) -> None:
    """Refuses a folder that has anything besides a checkpoint, which would be gone with it."""
    if target.exists() and not target.is_dir():
        raise SMPCheckpointError(f"{target} is a file; expected a folder, or a path for one")
    for name in sorted(os.listdir(target)) if target.exists() else []:
        if name not in {METADATA, DIGESTS} and not name.endswith(DEFAULT_SUFFIX):
            raise SMPCheckpointError(
                f"{target} has {name}, which is no file of a checkpoint of DCP, and the new one "
                "takes the place of the whole folder; give a folder of its own"
            )


def _staging(target: Path) -> Path:
    return target.with_name(f".{target.name}.dcp.writing")


def _set_aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def readable(target: Path) -> Path:
    """The checkpoint, also where a save was killed while it took the place of another."""
    aside = _set_aside(target)
    return aside if not target.exists() and (aside / METADATA).is_file() else target


def _bring_back(target: Path) -> None:
    aside = _set_aside(target)
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(target)


def _publish(staging: Path, target: Path) -> None:
    aside = _set_aside(target)
    if target.exists():
        target.rename(aside)
    staging.rename(target)
    sync(target.parent)
    shutil.rmtree(aside, ignore_errors=True)
