# SPDX-License-Identifier: Apache-2.0
"""What a folder of ``torch.distributed.checkpoint`` (DCP) holds, read as it is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from smdistributed.modelparallel.torch._files.dcp_folder import METADATA, DcpFolder, Piece
from smdistributed.modelparallel.torch._files.harmless_classes import harmless_allowed
from smdistributed.modelparallel.torch._files.torch_file import BadFile, Window
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


class DcpEntries(Mapping[str, Any]):
    """The entries of ``folder`` by the names that DCP gives them: keys of nested dictionaries
    joined by dots. A tensor is read, whole, each time it is looked at. No code of a file runs.

    Raises SMPCheckpointError, with the file, for what is absent, cut off or no tensor.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / METADATA).is_file():
            raise SMPCheckpointError(
                f"there is no checkpoint of torch.distributed.checkpoint in {folder}: it has no "
                f"{METADATA}"
            )
        try:
            self._folder = DcpFolder(folder)
        except BadFile as error:
            raise SMPCheckpointError(f"{folder / METADATA} {error}") from error
        self.paths = self._folder.paths
        """Keys of nested dictionaries that lead to each entry, as far as the writer said them."""
        self._pieces: dict[str, list[Piece]] = {}
        for piece in self._folder.pieces:
            self._pieces.setdefault(piece.entry, []).append(piece)
        self.likes = {
            name: torch.empty(facts.shape, dtype=_dtype(folder, name, facts.dtype), device="meta")
            for name, facts in self._folder.tensors.items()
        }
        """Shapes and types of the tensors, without storage."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def __contains__(self, name: object) -> bool:
        return name in self._pieces

    def __getitem__(self, name: str) -> Any:
        like = self.likes.get(name)
        pieces = self._pieces[name]
        if like is None:
            return self._read(pieces[0])
        if len(pieces) == 1:
            return self._box(pieces[0])
        whole = torch.empty(like.shape, dtype=like.dtype)
        for piece in pieces:
            part = whole
            box = self._box(piece)
            for axis, (begin, size) in enumerate(zip(piece.begin, box.shape, strict=True)):
                part = part.narrow(axis, begin, size)
            part.copy_(box)
        return whole

    def _box(self, piece: Piece) -> torch.Tensor:
        value = self._read(piece)
        shape = () if piece.facts is None else piece.facts.shape
        dtype = self.likes[piece.entry].dtype
        if not isinstance(value, torch.Tensor) or (value.shape, value.dtype) != (shape, dtype):
            raise SMPCheckpointError(
                f"{self._folder.folder / piece.file} is of another save: at byte {piece.offset} "
                f"it has {_told(value)}, where {METADATA} has shape {list(shape)} of {dtype} of "
                f"{piece.entry}"
            )
        return value

    def _read(self, piece: Piece) -> Any:
        path = self._folder.folder / piece.file
        if not piece.is_plain:
            raise SMPCheckpointError(
                f"{path} holds {piece.entry} as an extension of DCP wrote it, such as one that "
                "compresses; save it without"
            )
        try:
            with path.open("rb", buffering=0) as file:
                window = Window(file, piece.offset, piece.length)
                with harmless_allowed():
                    return torch.load(window, map_location="cpu", weights_only=True)  # type: ignore[arg-type]
        except OSError as error:
            raise SMPCheckpointError(f"cannot read {path}: {error.strerror or error}") from error
        except Exception as error:  # damaged pickles raise errors of any type
            other = re.search(r"GLOBAL (\S+)", str(error))  # torch's text has advice that is none
            why = f"it holds {other[1]}, which could run code" if other else str(error)
            raise SMPCheckpointError(
                f"cannot read {piece.entry} in {path}, at byte {piece.offset}: {why}"
            ) from error


class Below(Mapping[str, Any]):
    """The entries of ``names``: those of ``entries``, by other names."""

    def __init__(self, entries: DcpEntries, names: Mapping[str, str]) -> None:
        self._entries, self._names = entries, names
        self.likes = {name: entries.likes[place] for name, place in names.items()
                      if place in entries.likes}  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        return self._entries[self._names[name]]


def _dtype(folder: Path, name: str, text: str) -> torch.dtype:
    dtype = getattr(torch, text, None)
    if isinstance(dtype, torch.dtype):
        return dtype
    raise SMPCheckpointError(
        f"{folder / METADATA} has {name} of type {text}, which this torch does not know"
    )


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"shape {list(value.shape)} of {value.dtype}"
    return "no tensor"
