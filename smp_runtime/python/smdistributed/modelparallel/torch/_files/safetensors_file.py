# SPDX-License-Identifier: Apache-2.0
"""Files in the format of safetensors: the length of a header in JSON, 64 bits, the header, and the
elements of all tensors, one after the other.

A file of others is checked before anything of it is used, and mapped, so that what is never looked
at is never read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._files.inert_pickle import TensorFacts
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch._ranks.tensor_bytes import bytes_of
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

#: By name in files, in the order in which the library safetensors lays tensors out.
_TYPES = {
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F32": torch.float32,
    "U32": torch.uint32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_PLACES = {dtype: place for place, dtype in enumerate(_NAMES)}
_LENGTH_BYTES = 8  # of the header's length, and what the header is padded to
_MOST_HEADER_BYTES = 100_000_000  # as the library safetensors takes
_METADATA = "__metadata__"


def require_known_types(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises SMPCheckpointError that names the first tensor of a type that files cannot hold."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise SMPCheckpointError(
                f"{name} has the type {tensor.dtype}, which safetensors files cannot hold; they "
                f"hold {', '.join(_NAMES.values())}: convert it, or save the model with "
                "smp.save_checkpoint(..., partial=False)"
            )


class SafetensorsWriter:
    """Writes the file ``path``, which appears by ``commit``, with tensors like those of ``likes``.
    They are written in the order of ``names``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "file.safetensors"
    ...     writer = SafetensorsWriter(path, {"a": torch.ones(2)})
    ...     writer.write(torch.tensor([3.0, 4.0]))
    ...     digest = writer.commit()
    ...     mapped_tensors(path)
    {'a': tensor([3., 4.])}
    """

    def __init__(self, path: Path, likes: Mapping[str, torch.Tensor]) -> None:
        self.names = file_order(likes)
        self._file = _runtime.AtomicFile(path)
        self._file.write(_header({name: likes[name] for name in self.names}))

    def write(self, tensor: torch.Tensor) -> None:
        self._file.write(bytes_of(tensor))

    def commit(self) -> _runtime.FileDigest:
        return self._file.commit()


def file_order(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The names in the order of their elements in a file: aligned, that is by type, then by name.

    >>> file_order({"b": torch.ones(1), "a": torch.ones(1), "c": torch.ones(1).double()})
    ['c', 'a', 'b']
    """
    return sorted(tensors, key=lambda name: (_PLACES[tensors[name].dtype], name))


def _header(tensors: Mapping[str, torch.Tensor]) -> bytes:
    content: dict[str, Any] = {_METADATA: {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        content[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def mapped_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, by name. Their memory is the file, privately: a page of it is read
    when it is looked at first.

    Raises SMPCheckpointError, naming the file and the tensor, for one that is cut off or damaged.
    """
    try:
        begin, size, places = _header_of(path)
    except OSError as error:
        raise SMPCheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except BadFile as error:
        text = f"cannot read {path}: it {error}; fetch or save it again"
        raise SMPCheckpointError(text) from error
    if size == begin:
        return {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape, _) in places.items()}
    whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return {name: _view(whole, begin + first, dtype, shape)
            for name, (dtype, shape, first) in places.items()}  # fmt: skip


def facts_of(path: Path) -> dict[str, TensorFacts]:
    """What a file holds. Raises BadFile for one that is cut off or damaged, and OSError."""
    _, _, places = _header_of(path)
    return {name: TensorFacts(str(dtype).removeprefix("torch."), tuple(shape))
            for name, (dtype, shape, _) in places.items()}  # fmt: skip


def _header_of(path: Path) -> tuple[int, int, dict[str, _Place]]:
    """Where the elements begin in the file, its size, and the places of its tensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _MOST_HEADER_BYTES):
            raise BadFile(
                f"is cut off, or no file of safetensors: it has {size} bytes, and its header alone "
                f"would have {length}"
            )
        header = file.read(length)
    begin = _LENGTH_BYTES + length
    return begin, size, _places(header, size - begin)


def _view(whole: torch.Tensor, first: int, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    like = torch.empty(shape, dtype=dtype, device="meta")
    own = whole[first : first + like.nbytes]
    if first % dtype.itemsize:
        own = own.clone()
    return own.view(dtype).view(shape)


_Place = tuple[torch.dtype, list[int], int]


def _places(header: bytes, data_bytes: int) -> dict[str, _Place]:
    """Type, shape and begin of each tensor, all of which are within ``data_bytes`` and of the size
    that type and shape say, without gap or overlap."""
    places = {
        name: _place(name, entry) for name, entry in _content(header).items() if name != _METADATA
    }
    end, before = 0, "the header"
    for name, (dtype, shape, first) in sorted(places.items(), key=lambda one: one[1][2]):
        if first != end:
            what = "overlaps" if first < end else "leaves a gap behind"
            raise _damaged(f"tensor {name}, from byte {first} on, {what} {before}")
        end, before = first + _bytes(dtype, shape), f"tensor {name}"
        if end > data_bytes:
            raise BadFile(
                f"is cut off: tensor {name} ends at byte {end} of {data_bytes} that are there"
            )
    if end != data_bytes:
        raise _damaged(f"{data_bytes - end} bytes at its end belong to no tensor")
    return places


def _content(header: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a name is there twice")
        return made

    try:
        content = json.loads(header.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"its header is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise _damaged(f"its header is a {type(content).__name__}, no object by names")
    return content


def _place(name: str, entry: Any) -> _Place:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise _damaged(f"tensor {name} is {entry!r:.100}, not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise _damaged(f"tensor {name} has the type {dtype!r:.100}; known are {', '.join(_TYPES)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _damaged(f"tensor {name} has shape {shape!r:.100} and data_offsets {offsets!r:.100}")
    begin, end = offsets
    needed = _bytes(_TYPES[dtype], shape)
    if end - begin != needed:
        raise _damaged(
            f"tensor {name} has data_offsets {offsets}, {end - begin} bytes; {dtype} of shape "
            f"{shape} has {needed}",
        )
    return _TYPES[dtype], shape, begin


def _are_sizes(given: Any) -> bool:
    return isinstance(given, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**63 for one in given
    )


def _bytes(dtype: torch.dtype, shape: list[int]) -> int:
    count = dtype.itemsize
    for size in shape:
        count *= size
    return count


def _damaged(why: str) -> BadFile:
    return BadFile(f"is damaged: {why}")
