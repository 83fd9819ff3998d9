# SPDX-License-Identifier: Apache-2.0
"""``smp.save_pretrained``: the whole model as a folder that ``from_pretrained`` reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import (
    agreement,
    checkpoint_save,
)
from smdistributed.modelparallel.torch._checkpoint.file_splits import (
    INDEX,
    FileSplit,
    byte_count,
    split_into_files,
)
from smdistributed.modelparallel.torch._checkpoint.pretrained_folder import (
    NAME,
    finish,
    publish,
)
from smdistributed.modelparallel.torch._checkpoint.whole_entries import (
    WholeEntries,
    check_model,
    whole_layouts,
)
from smdistributed.modelparallel.torch._files.safetensors_file import (
    SafetensorsWriter,
    file_order,
    require_known_types,
)
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.state_mod import state

_SAVE = "smp.save_pretrained"


def save_pretrained(
    model: DistributedModel, path: str | os.PathLike[str], max_shard_size: int | str = "5GB"
) -> None:
    """Writes the whole model into the folder ``path`` as Hugging Face publishes models: in
    safetensors, under the names from before modules were replaced. All ranks call it.

    The folder then has ``model.safetensors``, or several files and an index, and of a model of
    Transformers ``config.json`` and ``generation_config.json``. Rank 0 writes all of it, on its
    host, a tensor at a time: beyond its own state no rank holds more than one tensor and what it
    is made of, and with sharded data parallelism one unit of the model. A tied parameter is
    written once, under its first name. Types are those of ``model.state_dict()``.

    Args:
        model: the job's model.
        path: a folder, made where it is missing. The model that it has is replaced, with all of
            its files; other files stay.
        max_shard_size: the size of a file, in bytes or as "5GB", "200MB" or "1GiB"; one tensor
            that is larger has a file for itself.

    Raises:
        SMPValidationError: an argument of another type, or other sizes on some ranks.
        SMPCheckpointError: on all ranks, naming the one that failed and why; what was there stays.

    >>> import tempfile, torch
    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> model = smp.DistributedModel(torch.nn.Linear(2, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     smp.save_pretrained(model, folder)
    ...     os.listdir(folder)
    ['model.safetensors']
    >>> smp.shutdown()
    """
    state.require_initialized(_SAVE)
    begin = time.monotonic()
    with agreement(_SAVE):
        folder = _checked_folder(model, path)
        limit = byte_count(max_shard_size, f"{_SAVE} got max_shard_size")
        own = model.streamed_entries()
    _require_alike(limit)
    with agreement(_SAVE):
        entries = WholeEntries(_SAVE, model, whole_layouts(model), own)
        likes = {name: one.like for name, one in entries.entries.items()
                 if name not in model.plain.unsaved}  # fmt: skip
        require_known_types(likes)
    split = split_into_files(likes, limit)
    with checkpoint_save(folder, NAME, _SAVE) as save:
        with agreement(_SAVE):
            if ranks.rank() == 0:
                finish(folder)
                _write_texts(save, model, split, _parameter_count(model, entries))
        for file in split.files:
            with agreement(_SAVE):  # so that ranks with nothing to send wait for one file, not all
                _write_shard(save, file, split, entries)
        if ranks.rank() == 0:
            publish(save.folder, folder)
    state.reports.event("checkpoint", f"{folder}, {time.monotonic() - begin:.1f} s")


def _parameter_count(model: DistributedModel, entries: WholeEntries) -> int:
    """Elements of the plain model's parameters."""
    own = dict(model.named_parameters())
    return sum(one.like.numel() for one in entries.entries.values()
               if any(source in own for source in one.sources))  # fmt: skip


def _write_texts(
    save: _runtime.CheckpointSave, model: DistributedModel, split: FileSplit, parameters: int
) -> None:
    likes = [like for files in split.files.values() for like in files.values()]
    dtype = next((like.dtype for like in likes if like.is_floating_point()), None)
    for config in model.plain.configs(dtype):
        try:
            config.save_pretrained(save.folder)
        except Exception as error:  # of Transformers, which refuses some settings
            raise SMPCheckpointError(
                f"the {type(config).__name__} of the model cannot be written: {error}"
            ) from error
    index = split.index(parameters)
    if index is not None:
        save.add(_runtime.write_file(save.folder / INDEX, index))


def _write_shard(
    save: _runtime.CheckpointSave, file: str, split: FileSplit, entries: WholeEntries
) -> None:
    """The other ranks send what rank 0 writes; they go on to the end where it cannot, for they
    could not tell why nobody takes what they have."""
    likes = split.files[file]
    writer: SafetensorsWriter | None = None
    failure: Exception | None = None
    if ranks.rank() == 0:
        try:
            writer = SafetensorsWriter(save.folder / file, likes)
        except Exception as error:
            failure = error
    for name in file_order(likes):
        value = entries.value(name)
        if writer is None or value is None:
            continue
        try:
            writer.write(value)
        except Exception as error:
            writer, failure = None, error
    if failure is not None:
        raise failure
    if writer is not None:
        save.add(writer.commit())


def _checked_folder(model: DistributedModel, path: str | os.PathLike[str]) -> Path:
    check_model(_SAVE, model)
    if not isinstance(path, (str, os.PathLike)):
        raise SMPValidationError(f"{_SAVE} got {type(path).__name__}; expected a folder's path")
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise SMPCheckpointError(
            f"{_SAVE} got {folder}, which is a file; expected a folder, or a path where one can be "
            "made"
        )
    return folder


def _require_alike(limit: int) -> None:
    limits = comm.allgather(limit, comm.CommGroup.WORLD)
    for rank, other in enumerate(limits):
        if other != limits[0]:
            raise SMPValidationError(
                f"{_SAVE}: max_shard_size is {limits[0]} bytes on rank 0 and {other} on rank "
                f"{rank}; give all ranks the same"
            )
