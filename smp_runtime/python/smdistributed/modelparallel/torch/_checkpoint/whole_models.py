# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts in the files in which they are published: PyTorch's, safetensors, indexes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

#: What newer versions of Transformers write where older ones wrote the file that is asked for.
INSTEAD = ("model.safetensors", "pytorch_model.bin.index.json", "model.safetensors.index.json")


def read_whole_model(path: Path, absent: Callable[[], str]) -> Mapping[str, Any]:
    """The state dict in ``path``, or in what Hugging Face writes beside it instead.

    Raises SMPCheckpointError, with the text of ``absent`` if nothing is there.
    """
    if path.is_file():
        return _read(path)
    for name in INSTEAD:
        other = path.with_name(name)
        if other.is_file():
            return _read(other)
    raise SMPCheckpointError(absent())


def _read(path: Path) -> Mapping[str, Any]:
    if path.name.endswith(".index.json"):
        return _read_index(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    entries = read_object(path, map_location="cpu")
    if not isinstance(entries, Mapping):
        raise SMPCheckpointError(
            f"{path} holds a {type(entries).__name__}; expected the state dict of a model"
        )
    return entries


def _read_index(path: Path) -> Mapping[str, Any]:
    try:
        files = sorted(set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise SMPCheckpointError(f"{path} is no index of a model: {error!r}") from error
    entries: dict[str, Any] = {}
    for name in files:
        part = path.with_name(name)
        if not part.is_file():
            raise SMPCheckpointError(f"{path.name} lists {name}, which is missing in {path.parent}")
        entries.update(_read(part))
    return entries


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    try:
        load_file = importlib.import_module("safetensors.torch").load_file
    except ImportError as error:
        raise SMPCheckpointError(
            f"reading {path} takes the package safetensors, which is not installed: "
            "pip install safetensors"
        ) from error
    try:
        return dict(load_file(path))
    except Exception as error:
        raise SMPCheckpointError(f"cannot read {path}: {error}") from error
