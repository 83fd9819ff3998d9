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
from pathlib import Path

from smdistributed.modelparallel.torch._checkpoint.file_splits import INDEX, SHARD, WHOLE
from smdistributed.modelparallel.torch._files.disk import explained, sync
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

    with explained(_what(folder)):
        for name in os.listdir(staging):
            if (folder / name).is_dir():
                raise SMPCheckpointError(
                    f"cannot write {folder / name}: a folder of that name is in the way"
                )
            sync(staging / name)
        sync(staging)
        staging.rename(folder / _PUBLISHING)
        sync(folder)
        _finish(folder)


def finish(folder: Path) -> None:
    """Brings the files of a save that was killed while it published them to their places. Raises
    SMPCheckpointError with the system's reason."""
    if (folder / _PUBLISHING).is_dir():
        with explained(_what(folder)):
            _finish(folder)


def _what(folder: Path) -> str:
    return f"cannot put the model's files into {folder}"


def _finish(folder: Path) -> None:
    new = folder / _PUBLISHING
    if _has_head(new):
        for head in _HEADS:
            (folder / head).unlink(missing_ok=True)
        sync(folder)
    for name in sorted(os.listdir(new), key=lambda name: (name in _HEADS, name)):
        (new / name).rename(folder / name)
    index = folder / INDEX
    named = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.exists() else {}
    for name in os.listdir(folder):
        if SHARD.fullmatch(name) and name not in named.values():
            (folder / name).unlink()
    sync(folder)
    new.rmdir()


def _has_head(new: Path) -> bool:
    return any((new / head).is_file() for head in _HEADS)
