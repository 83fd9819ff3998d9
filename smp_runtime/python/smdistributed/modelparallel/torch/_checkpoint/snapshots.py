# SPDX-License-Identifier: Apache-2.0
"""Objects as files of torch.save whose tensors are copied at once and written later, by the runtime
in C++: torch.save itself copies and writes in one, and holds the interpreter."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch.serialization import location_tag, normalize_storage_type

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.state_mod import state

_PROTOCOL = 2  # torch.save's


class SnapshotFiles:
    """Files of a save that ``saves`` is to write later: their contents are copied at once."""

    def __init__(self, saves: _runtime.BackgroundSaves) -> None:
        self._saves = saves
        self._files: list[_runtime.FileSnapshot] = []

    def write(self, name: str, obj: Any) -> None:
        """The file that ``torch.save(obj)`` would write now."""
        text = io.BytesIO()
        pickler = _Pickler(text)
        try:
            pickler.dump(obj)
        except Exception as error:
            raise SMPCheckpointError(
                f"an object of type {type(obj).__name__} cannot be written to {name}: {error}"
            ) from error
        file = self._saves.archive(name, text.getvalue())
        for storage in pickler.storages.values():
            file.add_storage(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))
        self._files.append(file)

    def write_text(self, name: str, text: str | bytes) -> None:
        self._files.append(self._saves.text(name, text))

    def publish_folder(self, save: _runtime.CheckpointSave, kept: int | None) -> None:
        """Has the files written into the folder of ``save``, which becomes the checkpoint then."""
        self._saves.add_folder(save, self._files, kept)

    def publish_in_memory(
        self, save: _runtime.CheckpointSave, memory: _runtime.MemoryCheckpoints
    ) -> None:
        """The same; the checkpoint is one of ``memory``."""
        self._saves.add_in_memory(save, self._files, memory)

    def publish_files(self, save: _runtime.CheckpointSave, manifest: str) -> None:
        """The same; the files become files of its root, with a manifest of that name."""
        self._saves.add_files(save, self._files, manifest)


def background_saves() -> _runtime.BackgroundSaves:
    """Those of this job."""
    if state.background_saves is None:
        session = state.require_initialized("smp.save_checkpoint")
        state.background_saves = _runtime.BackgroundSaves(session, session.options.saves_under_way)
    return state.background_saves


def wait_for_saves() -> None:
    """Blocks until the checkpoints of ``smp.save_checkpoint(..., blocking=False)`` are there. All
    ranks call it; ``smp.shutdown``, and thus the end of the script, does the same.

    Raises:
        SMPCheckpointError: on all ranks, where one of the saves failed, with the rank and why.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> smp.wait_for_saves()
    >>> smp.shutdown()
    """
    state.require_initialized("smp.wait_for_saves")
    if state.background_saves is not None:
        state.background_saves.wait()


class _Pickler(pickle.Pickler):
    """Leaves storages out: the pickle refers to them as ``torch.load`` expects it."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.storages: dict[int, torch.UntypedStorage] = {}
        self._numbers: dict[int, str] = {}

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            storage, elements = obj._untyped_storage, obj._size()
            kind = getattr(torch, obj._pickle_storage_type())
        elif isinstance(obj, torch.UntypedStorage):
            storage, elements = obj, obj.nbytes()
            kind = normalize_storage_type(type(obj))
        else:
            return None
        if storage.device.type == "meta":
            raise SMPCheckpointError("a tensor on the device meta has no values")
        self.storages.setdefault(storage._cdata, storage)  # alive as long as its number counts
        number = self._numbers.setdefault(storage._cdata, str(len(self._numbers)))
        return "storage", kind, number, location_tag(storage), elements
