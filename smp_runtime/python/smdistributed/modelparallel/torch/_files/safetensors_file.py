# SPDX-License-Identifier: Apache-2.0
"""A file of safetensors: a header that says where each tensor lies, and their bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._files.inert_pickle import TensorFacts, bytes_of
from smdistributed.modelparallel.torch._files.torch_file import BadFile

_LENGTH = 8  # bytes of the header's length, before it
_LONGEST = 100_000_000  # of a header, as the package safetensors has it
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


class SafetensorsFile:
    """Raises BadFile for a header that is none, or that the file's length does not fit."""

    def __init__(self, path: Path) -> None:
        self.tensors: dict[str, TensorFacts] = {}
        self.places: dict[str, tuple[int, int]] = {}
        """Begin and end of each tensor's bytes in the file."""
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            if size < _LENGTH or length > _LONGEST:
                raise BadFile("is no file of safetensors: it does not begin as one")
            text = file.read(length)
        self._begin = _LENGTH + length
        if len(text) != length:
            raise BadFile(f"is cut off: it has {size} bytes, and its header alone {length}")
        try:
            header = json.loads(text)
            for name, entry in header.items():
                if name != "__metadata__":
                    self._add(name, entry["dtype"], entry["shape"], entry["data_offsets"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, BadFile):
                raise
            raise BadFile(f"has a header that is damaged: {error!r}") from error
        self._check_places(size)

    def _add(self, name: str, kind: Any, shape: Any, place: Any) -> None:
        begin, end = place
        if not all(type(one) is int and one >= 0 for one in (*shape, begin, end)):
            raise BadFile(f"has a header that is damaged: {name} has sizes that are no sizes")
        facts = TensorFacts(DTYPES.get(kind, str(kind)), tuple(shape))
        width = bytes_of(facts.dtype)
        if width is not None and end - begin != width * math.prod(shape):
            raise BadFile(
                f"has a header that is damaged: {name}, {list(shape)} of {facts.dtype}, has "
                f"{end - begin} bytes"
            )
        self.tensors[name] = facts
        self.places[name] = self._begin + begin, self._begin + end

    def _check_places(self, size: int) -> None:
        end, before = self._begin, "the header"
        for name, (begin, after) in sorted(self.places.items(), key=lambda one: one[1]):
            if begin != end:
                how = "overlaps with" if begin < end else "leaves a gap after"
                raise BadFile(f"has a header that is damaged: {name} {how} {before}")
            end, before = after, name
        if size != end:
            how = "is cut off" if size < end else "has more bytes than its header says"
            raise BadFile(f"{how}: it has {size} bytes, and its header says {end}")
