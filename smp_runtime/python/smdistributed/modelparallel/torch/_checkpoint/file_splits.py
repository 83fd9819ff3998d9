# SPDX-License-Identifier: Apache-2.0
"""The split of a model's tensors into files, as Transformers splits them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from smdistributed.modelparallel.torch.exceptions import SMPValidationError

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
#: Names of the files of a model that has several.
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{kind}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for kind, base in (("B", 1000), ("iB", 1024))
}


@dataclass(frozen=True)
class FileSplit:
    """Tensors without storage, by file and name."""

    files: Mapping[str, Mapping[str, torch.Tensor]]

    def index(self, parameters: int | None = None) -> str | None:
        """The text of the index, of a model of so many parameters, if that is known; None for one
        file, which has none."""
        if len(self.files) == 1:
            return None
        total = sum(like.nbytes for likes in self.files.values() for like in likes.values())
        names = {name: file for file, likes in self.files.items() for name in likes}
        metadata = {"total_size": total}
        if parameters is not None:
            metadata["total_parameters"] = parameters
        content = {"metadata": metadata, "weight_map": names}
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def split_into_files(tensors: Mapping[str, torch.Tensor], limit_bytes: int) -> FileSplit:
    """Files of at most ``limit_bytes`` of ``tensors``, which are taken in their order. One that is
    larger has a file for itself, before the one that was begun.

    >>> like = torch.empty(3, dtype=torch.int8, device="meta")
    >>> list(split_into_files({"a": like, "b": like, "c": like}, 6).files)
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    shards: list[dict[str, torch.Tensor]] = []
    begun: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        if tensor.nbytes > limit_bytes:
            shards.append({name: tensor})
            continue
        if size + tensor.nbytes > limit_bytes:
            shards.append(begun)
            begun, size = {}, 0
        begun[name] = tensor
        size += tensor.nbytes
    if begun or not shards:
        shards.append(begun)
    if len(shards) == 1:
        return FileSplit({WHOLE: shards[0]})
    count = len(shards)
    return FileSplit({f"model-{number:05d}-of-{count:05d}.safetensors": shard
                      for number, shard in enumerate(shards, start=1)})  # fmt: skip


def byte_count(given: int | str, what: str) -> int:
    """A size in bytes; ``what`` begins the error.

    Raises SMPValidationError for anything else than a number of bytes above 0, or such a text.

    >>> byte_count("5GB", "size"), byte_count("1.5 KiB", "size"), byte_count(7, "size")
    (5000000000, 1536, 7)
    """
    count = 0
    if isinstance(given, int) and not isinstance(given, bool):
        count = given
    elif isinstance(given, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", given)
        units = {name.upper(): size for name, size in _UNITS.items()}
        if match and match[2].upper() in units:
            count = int(float(match[1]) * units[match[2].upper()])
    if count < 1:
        raise SMPValidationError(
            f'{what} {given!r}; expected a number of bytes above 0, or a text such as "5GB", '
            '"200MB" or "1GiB"'
        )
    return count
