# SPDX-License-Identifier: Apache-2.0
"""Folders of a model as Transformers writes and reads them: how a new model takes the place of one
that was there before.

Others read the folder without knowing of our saves, so at no moment may an index stand beside files
of another save. Files are written into a staging folder. Renaming that to
``.model.safetensors.publishing`` is the moment from which they count. Then what names the old files
goes, the new files come, that which names them last, and old files that no new one has replaced go.
A process that is killed in between leaves a folder that our reader looks through, and that the next
save of a model finishes; Transformers finds the old model there, or none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from smdistributed.modelparallel.torch._checkpoint.file_splits import INDEX, SHARD, WHOLE
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

#: The name by which saves of a model are staged.
NAME = WHOLE
_HEADS = (WHOLE, INDEX)
_PUBLISHING = f".{NAME}.publishing"


def placed(folder: Path, file: str) -> Path:
    """The place of a file of the model in ``folder``, which may not exist: that among files that
    count already, if the save that brought them was killed."""
    new = folder / _PUBLISHING
    if file in _HEADS and _has_head(new):
        return new / file
    return new / file if (new / file).is_file() else folder / file


def publish(staging: Path, folder: Path) -> None:
    """The files of ``staging`` become the model of ``folder``.

    Raises SMPCheckpointError with the system's reason.
    """

    def act() -> None:
        for name in os.listdir(staging):
            if (folder / name).is_dir():
                raise SMPCheckpointError(
                    f"cannot write {folder / name}: a folder of that name is in the way"
                )
            _sync(staging / name)
        _sync(staging)
        staging.rename(folder / _PUBLISHING)
        _sync(folder)
        _finish(folder)

    _explained(folder, act)


def finish(folder: Path) -> None:
    """Brings the files of a save that was killed while it published them to their places. Raises
    SMPCheckpointError with the system's reason."""
    if (folder / _PUBLISHING).is_dir():
        _explained(folder, lambda: _finish(folder))


def _finish(folder: Path) -> None:
    new = folder / _PUBLISHING
    if _has_head(new):
        for head in _HEADS:
            (folder / head).unlink(missing_ok=True)
        _sync(folder)
    for name in sorted(os.listdir(new), key=lambda name: (name in _HEADS, name)):
        (new / name).rename(folder / name)
    index = folder / INDEX
    named = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.exists() else {}
    for name in os.listdir(folder):
        if SHARD.fullmatch(name) and name not in named.values():
            (folder / name).unlink()
    _sync(folder)
    new.rmdir()


def _has_head(new: Path) -> bool:
    return any((new / head).is_file() for head in _HEADS)


def _explained(folder: Path, act: Callable[[], None]) -> None:
    try:
        act()
    except OSError as error:
        raise SMPCheckpointError(
            f"cannot put the model's files into {folder}: {error.filename}: {error.strerror}"
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
