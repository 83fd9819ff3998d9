# SPDX-License-Identifier: Apache-2.0
"""A folder of ``torch.distributed.checkpoint``: what its ``.metadata`` says of tensors and of the
pieces of files that hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from smdistributed.modelparallel.torch._files.inert_pickle import (
    BadPickle,
    InertObject,
    TensorFacts,
    read_inert,
)
from smdistributed.modelparallel.torch._files.torch_file import BadFile, TorchFile

METADATA = ".metadata"
_Place: TypeAlias = tuple[int, ...] | None
"""Where in a tensor a box begins; None for an object."""


@dataclass(frozen=True)
class Piece:
    """Where a file holds a tensor, a box of one, or an object."""

    entry: str
    file: str
    offset: int
    length: int
    begin: tuple[int, ...]
    """Where in the tensor the box begins; empty for an object."""
    facts: TensorFacts | None
    """Of the box; None for an object."""
    is_plain: bool
    """False where an extension, such as one that compresses, wrote it."""


@dataclass
class DcpFolder:
    """Raises BadFile for a ``.metadata`` that is damaged, or whose pieces leave out elements."""

    folder: Path
    tensors: dict[str, TensorFacts] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    paths: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of nested dictionaries and lists that lead to each entry, where the writer said them."""

    def __post_init__(self) -> None:
        try:
            with (self.folder / METADATA).open("rb") as file:
                metadata = read_inert(file)
            if not isinstance(metadata, InertObject):
                raise BadPickle("its pickle holds something else")
            self._take(metadata)
        except BadFile:
            raise
        except BadPickle as error:
            raise BadFile(f"is damaged, or no .metadata of DCP: {error}") from error
        except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
            raise BadFile(f"is no .metadata of DCP that this version knows: {error!r}") from error

    def _take(self, metadata: InertObject) -> None:
        boxes: dict[tuple[str, _Place], TensorFacts] = {}
        for entry, one in metadata.field("state_dict_metadata").items():
            if not one.name.endswith(".TensorStorageMetadata"):
                continue
            facts = TensorFacts(_dtype_of(one.field("properties")), tuple(one.field("size")))
            self.tensors[entry] = facts
            covered, placed = 0, []
            for chunk in one.field("chunks"):
                offsets, sizes = tuple(chunk.field("offsets")), tuple(chunk.field("sizes"))
                _check_inside(entry, facts.shape, offsets, sizes)
                boxes[entry, offsets] = TensorFacts(facts.dtype, sizes)
                covered += math.prod(sizes)
                placed.append((offsets, sizes))
            if covered != facts.elements:
                raise BadFile(
                    f"has pieces of {covered} of the {facts.elements} elements of {entry}"
                )
            _check_apart(entry, placed)
        paths = metadata.state.get("planner_data")
        if isinstance(paths, dict):
            self.paths = {name: path for name, path in paths.items() if isinstance(path, tuple)}
        places = metadata.field("storage_data")
        for index, place in places.items():
            entry, begin = index.field("fqn"), index.state.get("offset")
            key: tuple[str, _Place] = entry, None if begin is None else tuple(begin)
            file, offset, length = map(place.field, ("relative_path", "offset", "length"))
            if Path(file).is_absolute() or ".." in Path(file).parts or min(offset, length) < 0:
                raise BadFile(f"has {entry} at byte {offset} of {file!r}, outside of its folder")
            is_plain = not place.state.get("transform_descriptors")
            box = boxes.pop(key, None)
            self.pieces.append(Piece(entry, file, offset, length, key[1] or (), box, is_plain))
        for entry, start in boxes:
            raise BadFile(f"says of no file that it holds {entry} from {list(start or ())} on")
        self.pieces.sort(key=lambda piece: (piece.file, piece.offset))

    def files(self) -> dict[str, list[Piece]]:
        """The pieces by file, in order."""
        found: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.file, []).append(piece)
        return found

    def check_file(self, name: str, pieces: list[Piece]) -> bool:
        """Reads the pieces of a file. False if some have no checksums. Raises BadFile."""
        path = self.folder / name
        try:
            size = path.stat().st_size
            end = max(piece.offset + piece.length for piece in pieces)
            if end > size:
                raise BadFile(f"is cut off: it has {size} bytes of at least {end}")
            checked = True
            with path.open("rb", buffering=0) as file:
                for piece in pieces:
                    checked = self._check_piece(file, piece) and checked
            return checked
        except FileNotFoundError as error:
            raise BadFile(f"is missing; {METADATA} names it") from error
        except OSError as error:
            raise BadFile(f"cannot be read: {error.strerror}") from error

    def _check_piece(self, file: Any, piece: Piece) -> bool:
        if not piece.is_plain:
            return False
        try:
            archive = TorchFile(file, piece.offset, piece.length)
            archive.check_records()
            found = archive.content() if piece.facts is not None else None
        except BadFile as error:
            raise BadFile(f"{error} ({piece.entry}, at byte {piece.offset})") from error
        if piece.facts is not None and found != piece.facts:
            raise BadFile(
                f"is of another save: at byte {piece.offset} it has {_told(found)}, where "
                f"{METADATA} has {_told(piece.facts)} of {piece.entry}"
            )
        return archive.has_checksums


def _dtype_of(properties: InertObject) -> str:
    # TensorProperties gives its state as a tuple, which begins with the type.
    return str(properties.state[0])


def _check_inside(
    entry: str, shape: tuple[int, ...], offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    fits = len(offsets) == len(sizes) == len(shape) and all(
        begin >= 0 and size >= 0 and begin + size <= whole
        for begin, size, whole in zip(offsets, sizes, shape, strict=True)
    )
    if not fits:
        raise BadFile(
            f"has a piece {list(sizes)} of {entry} from {list(offsets)} on, outside of "
            f"{list(shape)}"
        )


def _check_apart(entry: str, boxes: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """Boxes that have as many elements as the tensor, and do not meet, are all of it."""
    full = [one for one in boxes if math.prod(one[1])]
    axes = range(len(full[0][0]) if full else 0)
    if len(full) < 2 or not axes:
        return
    cut = next((axis for axis in axes if len({begin[axis] for begin, _ in full}) > 1), 0)
    full.sort(key=lambda one: one[0][cut])
    for number, (begin, sizes) in enumerate(full):
        for other, others in full[number + 1 :]:
            if other[cut] >= begin[cut] + sizes[cut]:
                break  # those behind begin later still
            if all(begin[axis] < other[axis] + others[axis]
                   and other[axis] < begin[axis] + sizes[axis] for axis in axes):  # fmt: skip
                raise BadFile(f"has two pieces of the same elements of {entry}: from {list(begin)} "
                              f"and from {list(other)} on")  # fmt: skip


def _told(facts: Any) -> str:
    if isinstance(facts, TensorFacts):
        return f"a tensor {list(facts.shape)} of {facts.dtype}"
    return "no tensor"
