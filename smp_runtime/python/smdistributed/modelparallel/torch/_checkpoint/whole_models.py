# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts in the files in which they are published: PyTorch's, safetensors, indexes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_SAFE = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
#: What newer versions of Transformers write where older ones wrote the file that is asked for.
INSTEAD = (*_SAFE, _PICKLED[1])


def read_whole_model(
    path: Path, absent: Callable[[], str], *, is_of_others: bool, weights_only: bool
) -> Mapping[str, Any]:
    """The state dict in ``path``, or in what Hugging Face writes beside it instead. Weights of
    others that were published in both forms are read from safetensors, which is only numbers.

    ``weights_only`` is as of ``read_object``. Raises SMPCheckpointError, with the text of
    ``absent`` if nothing is there.
    """
    names = [path.name, *INSTEAD]
    if is_of_others and path.name in _PICKLED and importlib.util.find_spec("safetensors"):
        names = [*_SAFE, *names]
    found = next((file for file in map(path.with_name, names) if file.is_file()), None)
    if found is None:
        raise SMPCheckpointError(absent())
    return _read(found, weights_only=weights_only)


def _read(path: Path, *, weights_only: bool) -> Mapping[str, Any]:
    files = [path]
    if path.name.endswith(".index.json"):
        files = _listed_in(path)
    entries: dict[str, Any] = {}
    for file in files:
        if file.suffix == ".safetensors":
            entries.update(_read_safetensors(file))
        else:
            entries.update(_read_pickled(file, weights_only=weights_only))
    return entries


def _read_pickled(path: Path, *, weights_only: bool) -> Mapping[str, Any]:
    entries = read_object(path, weights_only=weights_only, map_location="cpu")
    if not isinstance(entries, Mapping):
        raise SMPCheckpointError(
            f"{path} holds a {type(entries).__name__}; expected the state dict of a model"
        )
    return entries


def _listed_in(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [index.with_name(name) for name in sorted(names)]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise SMPCheckpointError(f"{index} is no index of a model: {error!r}") from error
    for file in files:
        if not file.is_file():
            raise SMPCheckpointError(
                f"{index.name} lists {file.name}, which is missing in {index.parent}"
            )
    return files


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
