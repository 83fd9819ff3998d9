# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts in the files in which they are published: PyTorch's, safetensors, indexes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object
from smdistributed.modelparallel.torch._checkpoint.file_splits import INDEX, WHOLE
from smdistributed.modelparallel.torch._checkpoint.pretrained_folder import placed
from smdistributed.modelparallel.torch._files.safetensors_file import mapped_tensors
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_SAFE = (WHOLE, INDEX)
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
    if is_of_others and path.name in _PICKLED:
        names = [*_SAFE, *names]
    places = [path if name == path.name and name not in _SAFE else placed(path.parent, name)
              for name in names]  # fmt: skip
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise SMPCheckpointError(absent())
    return _read(found, path.parent, weights_only=weights_only)


def _read(path: Path, folder: Path, *, weights_only: bool) -> Mapping[str, Any]:
    if path.name.endswith(".index.json"):
        return _read_shards(path, folder, weights_only=weights_only)
    return _read_file(path, weights_only=weights_only)


def _read_file(path: Path, *, weights_only: bool) -> Mapping[str, Any]:
    if path.suffix == ".safetensors":
        return mapped_tensors(path)
    return _read_pickled(path, weights_only=weights_only)


def _read_shards(index: Path, folder: Path, *, weights_only: bool) -> Mapping[str, Any]:
    entries: dict[str, Any] = {}
    for name, listed in _listed_in(index).items():
        shard = placed(folder, name)
        if not shard.is_file():
            raise SMPCheckpointError(f"{index.name} lists {name}, which is missing in {folder}")
        found = _read_file(shard, weights_only=weights_only)
        absent = sorted(listed - found.keys())
        if absent:
            raise SMPCheckpointError(
                f"{index.name} lists {absent[0]} in {name}, which does not have it; the files in "
                f"{folder} are of several saves: fetch or save all of them again"
            )
        entries.update(found)
    return entries


def _read_pickled(path: Path, *, weights_only: bool) -> Mapping[str, Any]:
    entries = read_object(
        path, weights_only=weights_only, map_location="cpu", mmap=_is_archive(path)
    )
    if not isinstance(entries, Mapping):
        raise SMPCheckpointError(
            f"{path} holds a {type(entries).__name__}; expected the state dict of a model"
        )
    return entries


def _is_archive(path: Path) -> bool:
    """False for the form from before PyTorch 1.6, which is no archive."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _listed_in(index: Path) -> dict[str, set[str]]:
    """The names of the tensors in each file."""
    listed: dict[str, set[str]] = {}
    try:
        for name, file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].items():
            listed.setdefault(index.with_name(file).name, set()).add(name)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise SMPCheckpointError(f"{index} is no index of a model: {error!r}") from error
    return dict(sorted(listed.items()))
