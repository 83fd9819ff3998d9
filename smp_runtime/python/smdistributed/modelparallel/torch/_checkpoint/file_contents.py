# SPDX-License-Identifier: Apache-2.0
"""Objects as files that ``torch.load`` reads, written by the runtime in C++: torch.save makes
checksums and writes by turns, where one goes beside the other, and holds the interpreter."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch.serialization import location_tag, normalize_storage_type

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_PROTOCOL = 2  # torch.save's


def archive_of(
    name: str, obj: Any, saves: _runtime.BackgroundSaves | None = None
) -> _runtime.FileContent:
    """A file of ``obj`` for ``torch.load``, to be written at once, or by ``saves`` with what the
    tensors hold now. Raises SMPCheckpointError for what ``torch.save`` does not write either."""
    text = io.BytesIO()
    pickler = _Pickler(text)
    try:
        pickler.dump(obj)
    except Exception as error:
        raise SMPCheckpointError(
            f"an object of type {type(obj).__name__} cannot be written to {name}: {error}"
        ) from error
    content = _runtime.FileContent.archive(name, text.getvalue(), saves)
    for storage in pickler.storages.values():
        content.add_storage(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage))
    return content


class _Pickler(pickle.Pickler):
    """Leaves storages out: the pickle refers to them as ``torch.load`` expects it."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.storages: dict[int, torch.UntypedStorage] = {}
        self._numbers: dict[int, str] = {}
        self._types: dict[int, torch.dtype] = {}  # by address

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            storage, elements = obj._untyped_storage, obj._size()
            kind = getattr(torch, obj._pickle_storage_type())
        elif isinstance(obj, torch.UntypedStorage):
            storage, elements = obj, obj.nbytes()
            kind = normalize_storage_type(type(obj))
        else:
            return None
        if storage.device.type == "meta":
            raise SMPCheckpointError("a tensor on the device meta has no values")
        dtype = obj.dtype if isinstance(obj, torch.storage.TypedStorage) else torch.uint8
        if storage.data_ptr() and self._types.setdefault(storage.data_ptr(), dtype) != dtype:
            raise SMPCheckpointError(
                f"tensors of the types {self._types[storage.data_ptr()]} and {dtype} share memory, "
                "and some versions of torch.load read all of it as the first; save a copy of one"
            )
        self.storages.setdefault(storage._cdata, storage)  # alive as long as its number counts
        number = self._numbers.setdefault(storage._cdata, str(len(self._numbers)))
        return "storage", kind, number, location_tag(storage), elements
