# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of any form that are to become others, as they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.dcp_content import GROUPS, STATE
from smdistributed.modelparallel.torch._checkpoint.model_config import (
    CONFIG,
    ModelConfig,
    has_replaced_names,
)
from smdistributed.modelparallel.torch._checkpoint.plain_values import PlainValues
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
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch._files.verification import problems_of
from smdistributed.modelparallel.torch._state.own_entries import likes_of
from smdistributed.modelparallel.torch._state.streamed_states import KeptState
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

LEFT_OUT = "; the optimizer's state is left out"


@dataclass(frozen=True)
class Source:
    """A checkpoint that is read as it is looked at."""

    kind: str
    model: PlainValues
    config: ModelConfig | None
    """That which was given, or lies with the checkpoint."""
    kept: KeptState | None = None
    """The state of optimizers, if it has any that can be converted."""
    field: Callable[[str], PlainValues] | None = None
    """What they keep by a field."""
    left_out: str = ""
    """What is said of state that is there, and cannot be converted."""
    parts: WholeParts | None = None
    """What else there is of a checkpoint in parts."""


def open_source(given: Path, key: str | None, config: Path | None) -> Source:
    """The checkpoint in ``given``, or its newest. Arguments are those of ``convert``."""
    path = given
    if (path / _runtime.NEWEST).is_file():
        path = path / (path / _runtime.NEWEST).read_text(encoding="utf-8").strip()
    path = readable(path)
    if not path.exists():
        raise SMPCheckpointError(f"there is no checkpoint {path}")
    found = _config(config, [path, given] if path.is_dir() else [path.parent])
    if path.is_dir():
        for place, one in checkpoints_below(path, depth=0):
            if isinstance(one, BadFile):
                raise SMPCheckpointError(f"{place}: {one}")
            if isinstance(one, Parts):
                return _of_parts(place, one, found)
            if isinstance(one, Dcp):
                return _of_dcp(place, one, key, found)
        entries = read_whole_model(
            path / "pytorch_model.bin",
            lambda: f"{path} holds no checkpoint that can be converted: expected manifest.json, "
            f"{METADATA}, model.safetensors, pytorch_model.bin or an index of either",
            is_of_others=True,
            weights_only=True,
        )  # fmt: skip
        return Source("folder of Hugging Face", _of_entries(path, dict(entries), found), found)
    entries = read_whole_model(
        path, lambda: f"there is no file {path}", is_of_others=True, weights_only=True
    )
    return Source("whole model", _of_entries(path, dict(entries), found), found)


def _config(given: Path | None, places: Sequence[Path]) -> ModelConfig | None:
    if given is not None:
        there = given.is_file() and given.name == CONFIG
        if not there and not (given / CONFIG).is_file():
            raise SMPCheckpointError(f"{given} is no config.json, and has none")
        return ModelConfig(given)
    place = next((place for place in places if (place / CONFIG).is_file()), None)
    return None if place is None else ModelConfig(place)


def _of_parts(place: Path, one: Parts, config: ModelConfig | None) -> Source:
    whole = WholeParts(PartialCheckpoint(place, weights_only=True), config)
    return Source(one.kind, whole.model(), config, whole.optimizer(), whole.field, parts=whole)


def _of_entries(
    path: Path, entries: dict[str, torch.Tensor], config: ModelConfig | None
) -> LocalValues:
    others = [name for name, value in entries.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise SMPCheckpointError(
            f"{path} holds {others[0]}, which is no tensor: expected the state dict of a model"
        )
    to_plain = None
    if config is not None and has_replaced_names(entries):
        to_plain = config.registration().to_plain
    return LocalValues(entries, likes_of(entries), aliases(entries), to_plain or dict)


def _of_dcp(folder: Path, one: Dcp, key: str | None, config: ModelConfig | None) -> Source:
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
    left_out = LEFT_OUT if optimizers else ""
    return Source(one.kind, LocalValues(below, below.likes, {}), config, left_out=left_out)


def _prefix_of(folder: Path, tensors: Sequence[str], paths: Mapping[str, tuple[Any, ...]]) -> str:
    """The keys in front of the model's names: of the one dictionary that has tensors."""
    found = {".".join(map(str, (*paths.get(name, (name,))[:-1], ""))) for name in tensors}
    if len(found) == 1:
        return found.pop()
    told = ", ".join(repr(prefix.removesuffix(".")) for prefix in sorted(found))
    raise SMPCheckpointError(
        f"{folder} has tensors in several places, {told or 'none'}; say by key which is the model"
    )
