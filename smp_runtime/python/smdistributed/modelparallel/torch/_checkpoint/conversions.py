# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of one form made of those of another, without a job."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.conversion_sources import (
    LEFT_OUT,
    Source,
    open_source,
)
from smdistributed.modelparallel.torch._checkpoint.dcp_content import DcpContent
from smdistributed.modelparallel.torch._checkpoint.dcp_writing import write_dcp
from smdistributed.modelparallel.torch._checkpoint.file_splits import (
    INDEX,
    byte_count,
    split_into_files,
)
from smdistributed.modelparallel.torch._checkpoint.model_config import has_replaced_names
from smdistributed.modelparallel.torch._checkpoint.pretrained_folder import NAME, finish, publish
from smdistributed.modelparallel.torch._checkpoint.v2_folder import PRETRAINED, ShardedState
from smdistributed.modelparallel.torch._files.disk import explained
from smdistributed.modelparallel.torch._files.safetensors_file import (
    SafetensorsWriter,
    require_known_types,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    *,
    key: str | None = None,
    max_shard_size: int | str = "5GB",
    config: str | os.PathLike[str] | None = None,
    content: Mapping[str, Any] | None = None,
) -> str:
    """Writes what is in ``source`` into the folder ``target`` in another form, a value at a time.
    Needs no job, and runs nothing that a file holds.

    Args:
        source: a checkpoint of ``smp.save_checkpoint`` in parts or the folder of several, of which
            the newest is taken; one of ``torch.distributed.checkpoint`` (DCP); a folder of Hugging
            Face; or a file of ``torch.save`` or safetensors with a state dict.
        target: a folder; a checkpoint of that form that is there is replaced.
        to: "dcp", as ``smp.save_dcp`` writes it, with the optimizer's state if ``source`` has parts
            with such; "huggingface", as ``smp.save_pretrained`` does: the model alone; or "v2", for
            scripts of SMP v2: that folder as ``pretrained``, and, if ``source`` has parts with the
            optimizer's state, ``sharded``, a checkpoint of DCP that they resume from. It also has
            the entries of the user content, if that is a dictionary, ``lr_scheduler`` as
            ``scheduler``.
        key: where ``source``, of DCP, has the model, such as "app.model", or where ``target`` of
            DCP is to have it; None: in the one dictionary of ``source`` with tensors that are no
            optimizer's, and "model".
        max_shard_size: the size of a file for Hugging Face.
        config: a folder or file with ``config.json`` of the model, which goes to Hugging Face's
            files; None: that in ``source``, if it is there. "v2" needs one, and so does
            "huggingface" of a checkpoint that does not say by what names the model was known before
            tensor parallelism. Where Transformers is installed, the checkpoint has to have the
            entries of the model that it describes, all of them and no others.
        content: further entries of ``sharded``, which the script asks for: ``{"epoch": 0}``.

    Returns:
        A sentence about what was converted, and what was left behind.

    Raises:
        SMPCheckpointError: for what is not whole, not known, of another model than ``config``, or
            does not have the names from before modules were replaced; ``target`` is as it was then.
    """
    from_path, into = Path(source).resolve(), Path(target).resolve()
    if from_path == into or into in from_path.parents:
        raise SMPCheckpointError(
            f"convert got {into} for its target, where the source is; give another folder"
        )
    if to not in ("dcp", "huggingface", "v2"):
        raise SMPCheckpointError(f"convert got to={to!r}; expected 'dcp', 'huggingface' or 'v2'")
    if content and to != "v2":
        raise SMPCheckpointError(f"convert got content, which {to} has no place for; expected v2")
    found = open_source(from_path, key, None if config is None else Path(config))
    told = f"{into}: {len(found.model.entries)} tensors of a {found.kind}"
    if to == "dcp":
        return told + _to_dcp(into, found, "model" if key is None else key)
    limit = byte_count(max_shard_size, "convert got")
    pretrained = _Pretrained(found, limit, needs_config=to == "v2")
    if to == "huggingface":
        pretrained.write(into)
        return told + (LEFT_OUT if found.kept is not None else found.left_out) + pretrained.told
    sharded = ShardedState(found, content or {})
    sharded.check(into)
    sharded.write(into)
    pretrained.write(into / PRETRAINED)
    return told + sharded.told + pretrained.told


def _to_dcp(folder: Path, found: Source, key: str) -> str:
    content = DcpContent()
    content.add_model(found.model, key)
    if found.kept is not None and found.field is not None:
        content.add_optimizer(found.kept, found.field, "optimizer")
    write_dcp(folder, content)
    return " and the state of its optimizer" if found.kept is not None else found.left_out


class _Pretrained:
    """The model of ``found`` as a folder of Hugging Face, with files of at most ``limit`` bytes.
    ``told`` is what is to be said of it.

    Raises SMPCheckpointError where a config is missing that it needs, or is of another model.
    """

    def __init__(self, found: Source, limit: int, *, needs_config: bool) -> None:
        self._values, self._config, self._limit = found.model, found.config, limit
        if has_replaced_names(found.model.entries):
            raise SMPCheckpointError(
                f"the {found.kind} has names of a model that tensor parallelism has replaced, such "
                f"as {next(iter(found.model.entries))}, and does not say what it was before; give "
                "the config.json of the model by --config"
            )
        if needs_config and self._config is None:
            raise SMPCheckpointError(
                f"the {found.kind} has no config.json, which from_pretrained needs; give that of "
                "the model by --config"
            )
        names: Iterable[str] = found.model.entries
        self.told = "; without config.json, which from_pretrained needs: give it by --config"
        if self._config is not None:
            names, self.told = self._config.written(found.model)
        self._likes = {name: found.model.entries[name].like for name in names}
        require_known_types(self._likes)

    def write(self, folder: Path) -> None:
        split = split_into_files(self._likes, self._limit)
        with explained(f"cannot write into {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            finish(folder)
            staging = Path(tempfile.mkdtemp(prefix=f".{NAME}.", suffix=".staging", dir=folder))
        try:
            if self._config is not None:
                floats = [one.dtype for one in self._likes.values() if one.is_floating_point()]
                self._config.write(staging, floats[0] if floats else None)
            index = split.index()
            if index is not None:
                _runtime.write_file(staging / INDEX, index)
            for file, held in split.files.items():
                writer = SafetensorsWriter(staging / file, held)
                for name in writer.names:
                    value = self._values.value(name)
                    assert value is not None
                    writer.write(value)
                writer.commit()
            publish(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
