# SPDX-License-Identifier: Apache-2.0
"""Arguments and results of modules on their way between ranks.

A tree of objects becomes bytes (its definition) and the tensors that stood in it. Pickle walks the
tree, so dict subclasses, namedtuples, dataclasses and None keep their types, and an object that
appears twice is one object again at the other end.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._pipeline.containers import is_sequence
from smdistributed.modelparallel.torch._pipeline.remote_tensors import seen

#: What :func:`pack` raises for an object that cannot be pickled.
REFUSALS = (pickle.PicklingError, TypeError, AttributeError)
#: Finds a parameter by name; names the one that is meant by the other rank.
ParameterFinder = Callable[[str], nn.Parameter]
#: The name of a parameter that lives on another rank, or None for any other tensor.
RemoteName = Callable[[nn.Parameter], "str | None"]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, remote_name: RemoteName | None) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self._index: dict[int, int] = {}
        self._remote_name = remote_name

    def persistent_id(self, obj: Any) -> int | str | None:
        if not isinstance(obj, torch.Tensor):
            return None
        obj = seen(obj)
        if self._remote_name is not None and isinstance(obj, nn.Parameter):
            name = self._remote_name(obj)
            if name is not None:
                return name
        index = self._index.setdefault(id(obj), len(self.tensors))
        if index == len(self.tensors):
            self.tensors.append(obj)
        return index


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: io.BytesIO, tensors: list[torch.Tensor], find: ParameterFinder | None
    ) -> None:
        super().__init__(file)
        self._tensors = tensors
        self._find = find

    def persistent_load(self, pid: Any) -> torch.Tensor:
        if isinstance(pid, int):
            return self._tensors[pid]
        if self._find is None:
            raise pickle.UnpicklingError(f"a reference to parameter {pid} where none is expected")
        return self._find(pid)


def pack(tree: Any, remote_name: RemoteName | None = None) -> tuple[bytes, list[torch.Tensor]]:
    """Splits ``tree`` into bytes and tensors.

    A parameter for which ``remote_name`` gives a name travels as that name alone. Raises one of
    ``REFUSALS`` for an object that cannot be pickled.

    >>> definition, tensors = pack({"a": torch.ones(2), "b": None})
    >>> len(tensors)
    1
    >>> unpack(definition, tensors)["b"] is None
    True
    """
    file = io.BytesIO()
    pickler = _Pickler(file, remote_name)
    pickler.dump(tree)
    return file.getvalue(), pickler.tensors


def place_that_stays(where: str, tree: Any) -> str:
    """The innermost container or leaf of ``tree``, which :func:`pack` refuses, that it refuses.

    >>> place_that_stays("result", [1, {"a": (None, lambda: None)}])
    "result[1]['a'][1]"
    """
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, Mapping):
        entries = tree.items()
    elif is_sequence(tree):
        entries = enumerate(tree)
    for key, value in entries:
        try:
            pack(value)
        except REFUSALS:
            return place_that_stays(f"{where}[{key!r}]", value)
    return where


def unpack(
    definition: bytes, tensors: list[torch.Tensor], find: ParameterFinder | None = None
) -> Any:
    """The inverse of :func:`pack`; ``find`` resolves the names of parameters.

    Only for bytes that a rank of the same job has packed: unpickling runs code.
    """
    return _Unpickler(io.BytesIO(definition), tensors, find).load()
