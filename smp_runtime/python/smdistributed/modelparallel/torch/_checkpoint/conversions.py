# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of one form made of those of another, without a job."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.dcp_content import GROUPS, STATE, DcpContent
from smdistributed.modelparallel.torch._checkpoint.dcp_writing import write_dcp
from smdistributed.modelparallel.torch._checkpoint.file_splits import (
    INDEX,
    byte_count,
    split_into_files,
)
from smdistributed.modelparallel.torch._checkpoint.plain_values import PlainValues
from smdistributed.modelparallel.torch._checkpoint.pretrained_folder import NAME, finish, publish
from smdistributed.modelparallel.torch._checkpoint.saved_parts import PartialCheckpoint
from smdistributed.modelparallel.torch._checkpoint.whole_models import read_whole_model
from smdistributed.modelparallel.torch._checkpoint.whole_parts import (
    LocalValues,
    WholeParts,
    aliases,
)
from smdistributed.modelparallel.torch._files.checkpoint_kinds import Dcp, Parts, checkpoints_below
from smdistributed.modelparallel.torch._files.dcp_entries import Below, DcpEntries
from smdistributed.modelparallel.torch._files.dcp_folder import METADATA
from smdistributed.modelparallel.torch._files.dcp_places import readable
from smdistributed.modelparallel.torch._files.disk import explained
from smdistributed.modelparallel.torch._files.safetensors_file import (
    SafetensorsWriter,
    require_known_types,
)
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch._files.verification import problems_of
from smdistributed.modelparallel.torch._state.own_entries import likes_of
from smdistributed.modelparallel.torch._state.streamed_states import KeptState
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_LEFT_OUT = "; the optimizer's state is left out"
_CONFIGS = ("config.json", "generation_config.json")


@dataclass(frozen=True)
class Source:
    """A checkpoint that is read as it is looked at."""

    kind: str
    model: PlainValues
    kept: KeptState | None = None
    """The state of optimizers, if it has any that can be converted."""
    field: Callable[[str], PlainValues] | None = None
    """What they keep by a field."""
    left_out: str = ""
    """What is said of state that is there, and cannot be converted."""


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    *,
    key: str | None = None,
    max_shard_size: int | str = "5GB",
    config: str | os.PathLike[str] | None = None,
) -> str:
    """Writes what is in ``source`` into the folder ``target`` in another form, a value at a time.
    Needs no job, and runs nothing that a file holds.

    Args:
        source: a checkpoint of ``smp.save_checkpoint`` in parts or the folder of several, of which
            the newest is taken; one of ``torch.distributed.checkpoint`` (DCP); a folder of Hugging
            Face; or a file of ``torch.save`` or safetensors with a state dict.
        target: a folder; a checkpoint of that form that is there is replaced.
        to: "dcp", as ``smp.save_dcp`` writes it, with the optimizer's state if ``source`` has parts
            with such; or "huggingface", as ``smp.save_pretrained`` does: the model alone.
        key: where ``source``, of DCP, has the model, such as "app.model", or where ``target`` of
            DCP is to have it; None: in the one dictionary of ``source`` with tensors that are no
            optimizer's, and "model".
        max_shard_size: the size of a file for Hugging Face.
        config: a folder or file with ``config.json`` of the model, which goes to Hugging Face's
            files; None: that beside ``source``, if it is there.

    Returns:
        A sentence about what was converted.

    Raises:
        SMPCheckpointError: for what is not whole, not known, or does not have the names from before
            modules were replaced; ``target`` is as it was then.
    """
    from_path, into = Path(source).resolve(), Path(target).resolve()
    if from_path == into or into in from_path.parents:
        raise SMPCheckpointError(
            f"convert got {into} for its target, where the source is; give another folder"
        )
    found = _open(from_path, key)
    if to == "dcp":
        content = DcpContent()
        content.add_model(found.model, "model" if key is None else key)
        if found.kept is not None and found.field is not None:
            content.add_optimizer(found.kept, found.field, "optimizer")
        write_dcp(into, content)
        state = " and the state of its optimizer" if found.kept is not None else found.left_out
    elif to == "huggingface":
        _write_pretrained(into, found.model, byte_count(max_shard_size, "convert got"), _configs(
            from_path if config is None else Path(config), wanted=config is not None))  # fmt: skip
        state = _LEFT_OUT if found.kept is not None else found.left_out
    else:
        raise SMPCheckpointError(f"convert got to={to!r}; expected 'dcp' or 'huggingface'")
    return f"{into}: {len(found.model.entries)} tensors of a {found.kind}{state}"


def _open(path: Path, key: str | None) -> Source:
    if (path / _runtime.NEWEST).is_file():
        name = (path / _runtime.NEWEST).read_text(encoding="utf-8").strip()
        path = path / name
    path = readable(path)
    if not path.exists():
        raise SMPCheckpointError(f"there is no checkpoint {path}")
    if path.is_dir():
        for place, one in checkpoints_below(path, depth=0):
            if isinstance(one, BadFile):
                raise SMPCheckpointError(f"{place}: {one}")
            if isinstance(one, Parts):
                whole = WholeParts(PartialCheckpoint(place, weights_only=True))
                return Source(one.kind, whole.model(), whole.optimizer(), whole.field)
            if isinstance(one, Dcp):
                return _of_dcp(place, one, key)
        entries = read_whole_model(
            path / "pytorch_model.bin",
            lambda: f"{path} holds no checkpoint that can be converted: expected manifest.json, "
            f"{METADATA}, model.safetensors, pytorch_model.bin or an index of either",
            is_of_others=True,
            weights_only=True,
        )  # fmt: skip
        return Source("folder of Hugging Face", _of_entries(path, dict(entries)))
    entries = read_whole_model(
        path, lambda: f"there is no file {path}", is_of_others=True, weights_only=True
    )
    return Source("whole model", _of_entries(path, dict(entries)))


def _of_entries(path: Path, entries: dict[str, torch.Tensor]) -> LocalValues:
    others = [name for name, value in entries.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise SMPCheckpointError(
            f"{path} holds {others[0]}, which is no tensor: expected the state dict of a model"
        )
    return LocalValues(entries, likes_of(entries), aliases(entries))


def _of_dcp(folder: Path, one: Dcp, key: str | None) -> Source:
    if problems := problems_of(folder, one, one.names):
        raise SMPCheckpointError("\n".join(f"{folder}/{problem}" for problem in problems))
    entries = DcpEntries(folder)
    optimizers = {name.partition(f"{GROUPS}.")[0] for name in entries if f"{GROUPS}." in name}
    states = tuple(f"{of}{STATE}." for of in optimizers)
    tensors = [name for name in entries.likes if not name.startswith(states)]
    prefix = _prefix_of(folder, tensors, entries.paths) if key is None else f"{key}." if key else ""
    names = {name.removeprefix(prefix): name for name in tensors if name.startswith(prefix)}
    if not names:
        raise SMPCheckpointError(
            f"{folder} has no tensor of a model below {prefix!r}; there are "
            f"{', '.join(list(entries.likes)[:8]) or 'no tensors'}"
        )
    below = Below(entries, names)
    left_out = _LEFT_OUT if optimizers else ""
    return Source(one.kind, LocalValues(below, below.likes, {}), left_out=left_out)


def _prefix_of(folder: Path, tensors: Sequence[str], paths: Mapping[str, tuple[Any, ...]]) -> str:
    """The keys in front of the model's names: of the one dictionary that has tensors."""
    found = {".".join(map(str, (*paths.get(name, (name,))[:-1], ""))) for name in tensors}
    if len(found) == 1:
        return found.pop()
    told = ", ".join(repr(prefix.removesuffix(".")) for prefix in sorted(found))
    raise SMPCheckpointError(
        f"{folder} has tensors in several places, {told or 'none'}; say by key which is the model"
    )


def _configs(place: Path, *, wanted: bool) -> list[Path]:
    """The configs of the model in a folder, or a file."""
    found = [place] if place.is_file() else [place / name for name in _CONFIGS]
    there = [file for file in found if file.is_file() and file.name in _CONFIGS]
    if wanted and not there:
        raise SMPCheckpointError(f"{place} is no config.json, and has none")
    return there


def _write_pretrained(
    folder: Path, values: PlainValues, limit_bytes: int, configs: Sequence[Path]
) -> None:
    likes = {name: one.like for name, one in values.entries.items()}
    require_known_types(likes)
    split = split_into_files(likes, limit_bytes)
    with explained(f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        finish(folder)
        staging = Path(tempfile.mkdtemp(prefix=f".{NAME}.", suffix=".staging", dir=folder))
    try:
        for config in configs:
            with explained(f"cannot copy {config} into {folder}"):
                shutil.copyfile(config, staging / config.name)
        index = split.index()
        if index is not None:
            _runtime.write_file(staging / INDEX, index)
        for file, held in split.files.items():
            writer = SafetensorsWriter(staging / file, held)
            for name in writer.names:
                value = values.value(name)
                assert value is not None
                writer.write(value)
            writer.commit()
        publish(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
