# SPDX-License-Identifier: Apache-2.0
"""Pickles of anybody as what they describe: nothing that they name is imported or called.

A class or function of the file becomes an inert object, which keeps its attributes; tensors
become their facts. Torch's own reader makes the tensors, so it needs their bytes, and refuses whole
files for one object of another class.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4,
    "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "quint8": 1, "qint8": 1, "qint32": 4,
}  # fmt: skip
_STORAGES = {
    "BoolStorage": "bool", "ByteStorage": "uint8", "CharStorage": "int8", "ShortStorage": "int16",
    "IntStorage": "int32", "LongStorage": "int64", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "FloatStorage": "float32", "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
    "QUInt8Storage": "quint8", "QInt8Storage": "qint8", "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
}  # fmt: skip


def bytes_of(dtype: str) -> int | None:
    """Bytes of an element of ``torch.<dtype>``; None for one that is not known here."""
    return _BYTES.get(dtype)


@dataclass(frozen=True)
class TensorFacts:
    dtype: str
    """As torch calls it: "float32"."""
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """0 for types that are not known here."""
        return self.elements * (bytes_of(self.dtype) or 0)


@dataclass(frozen=True)
class StorageFacts:
    """A record of the file, as elements."""

    record: str
    dtype: str
    elements: int


class InertObject:
    """In place of an object of the class ``name``, or of what that function returns."""

    name = ""
    state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> InertObject:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    # What a pickle adds to a list or a dictionary of a class of its own.
    def append(self, _: Any) -> None: ...
    def extend(self, _: Any) -> None: ...
    def add(self, _: Any) -> None: ...
    def __setitem__(self, _: Any, __: Any) -> None: ...

    def field(self, name: str) -> Any:
        """An attribute that the pickle sets. Raises BadPickle if it does not."""
        if not isinstance(self.state, Mapping) or name not in self.state:
            raise BadPickle(f"its {self.name} has no {name}")
        return self.state[name]


class BadPickle(ValueError):
    """The text ends a sentence that begins with the file."""


def read_inert(file: IO[bytes], storage_bytes: Callable[[str], int | None] | None = None) -> Any:
    """The object that a pickle describes. ``storage_bytes`` gives the size of a record by its key,
    None where there is none. Raises BadPickle for bytes that are none, and for tensors that reach
    beyond their records."""
    try:
        return _InertUnpickler(file, storage_bytes).load()
    except BadPickle:
        raise
    except RecursionError as error:
        raise BadPickle("its pickle nests too deep") from error
    except Exception as error:  # whatever hostile bytes bring about in an unpickler
        raise BadPickle(f"its pickle cannot be read: {error or type(error).__name__}") from error


class _InertUnpickler(pickle.Unpickler):
    def __init__(
        self, file: IO[bytes], storage_bytes: Callable[[str], int | None] | None = None
    ) -> None:
        super().__init__(file)
        self._storage_bytes = storage_bytes
        self._known: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        return self._known.setdefault((module, name), _meaning(module, name))

    def persistent_load(self, pid: Any) -> StorageFacts:
        """A storage, as torch.save refers to it."""
        if self._storage_bytes is None or not isinstance(pid, tuple) or len(pid) != 5:
            raise BadPickle("its pickle refers to something outside of it")
        _, kind, key, _, elements = pid
        dtype = _STORAGES.get(getattr(kind, "name", "").rpartition(".")[2], str(kind))
        size, there = bytes_of(dtype), self._storage_bytes(str(key))
        if there is None:
            raise BadPickle(f"record data/{key} is missing")
        if size is not None and (type(elements) is not int or not 0 <= elements * size <= there):
            raise BadPickle(f"record data/{key} holds {there} bytes, and is to hold {elements} "
                            f"elements of {dtype}")  # fmt: skip
        return StorageFacts(str(key), dtype, elements)


def _meaning(module: str, name: str) -> Any:
    if module == "torch._utils" and name in _MAKERS:
        return _MAKERS[name]
    if module == "torch" and name in _BYTES:
        return name
    if (module, name) in _PLAIN:
        return _PLAIN[module, name]
    return type(name.rpartition(".")[2], (InertObject,), {"name": f"{module}.{name}"})


class _Dict(dict[Any, Any]):
    """An OrderedDict, with the attributes that state dicts have."""


def _without_factory(*_: Any) -> _Dict:
    return _Dict()


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> TensorFacts:
    return _view(storage, storage.dtype, offset, size, stride)


def _tensor_v3(
    storage: Any, offset: int, size: Any, stride: Any, _: Any, __: Any, dtype: str, *___: Any
) -> TensorFacts:
    return _view(storage, dtype, offset, size, stride)


def _view(storage: Any, dtype: str, offset: int, size: Any, stride: Any) -> TensorFacts:
    sizes, strides = tuple(size), tuple(stride)
    if not all(type(one) is int and one >= 0 for one in (offset, *sizes, *strides)):
        raise BadPickle("a tensor has sizes that are no sizes")
    width, own = bytes_of(dtype), bytes_of(storage.dtype)
    reach = 0
    if all(sizes):
        reach = offset + 1 + sum((n - 1) * by for n, by in zip(sizes, strides, strict=True))
    if width is not None and own is not None and reach * width > storage.elements * own:
        raise BadPickle(
            f"a tensor reaches to element {reach} of record data/{storage.record}, which has "
            f"{storage.elements}"
        )
    return TensorFacts(dtype, sizes)


def _first(data: Any, *_: Any) -> Any:
    return data


def _of_type(make: Any, _: Any, arguments: Any, __: Any) -> Any:
    return make(*arguments)  # itself from find_class()


_MAKERS = {
    "_rebuild_tensor": _tensor,
    "_rebuild_tensor_v2": _tensor,
    "_rebuild_tensor_v3": _tensor_v3,
    "_rebuild_parameter": _first,
    "_rebuild_parameter_with_state": _first,
    "_rebuild_from_type_v2": _of_type,
}
#: What is made as it is: containers and numbers, whose constructors do nothing else.
_PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Dict,
    ("collections", "defaultdict"): _without_factory,
    ("torch", "Size"): tuple,
    ("builtins", "set"): set, ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex, ("builtins", "slice"): slice,
}  # fmt: skip
