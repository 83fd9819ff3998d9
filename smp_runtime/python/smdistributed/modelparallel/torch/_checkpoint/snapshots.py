# SPDX-License-Identifier: Apache-2.0
"""Files of a save that are copied at once, and written later by the runtime in C++."""

from __future__ import annotations

from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.file_contents import archive_of
from smdistributed.modelparallel.torch.state_mod import state


class SnapshotFiles:
    """Files of a save that ``saves`` is to write later: their contents are copied at once."""

    def __init__(self, saves: _runtime.BackgroundSaves) -> None:
        self._saves = saves
        self._files: list[_runtime.FileContent] = []

    def write(self, name: str, obj: Any) -> None:
        """The file that ``torch.save(obj)`` would write now."""
        self._files.append(archive_of(name, obj, self._saves))

    def write_text(self, name: str, text: str | bytes) -> None:
        self._files.append(_runtime.FileContent.text(name, text))

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
