# SPDX-License-Identifier: Apache-2.0
"""Arguments and results of modules on their way between ranks.

A tree of objects becomes bytes (its definition) and the tensors that stood in it. Pickle walks the
tree, so dict subclasses, namedtuples, dataclasses and None keep their types, and an object that
appears twice is one object again at the other end.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._objects.containers import is_sequence
from smdistributed.modelparallel.torch._objects.object_states import IMMUTABLE
from smdistributed.modelparallel.torch._objects.remote_tensors import (
    Description,
    description_of,
    seen,
)

#: Exceptions that :func:`pack` raises for an object that cannot be pickled.
REFUSALS = (pickle.PicklingError, TypeError, AttributeError)
#: Finds a parameter by name; names the one that is meant by the other rank.
ParameterFinder = Callable[[str], nn.Parameter]
#: The name of a parameter that lives on another rank, or None for any other tensor.
RemoteName = Callable[[nn.Parameter], "str | None"]

_KNOWN, _GIVEN, _ABSENT = range(3)  # marks of an object or a tensor in a message


class Writer(pickle.Pickler):
    """Packs the trees of one message, one after the other. An object that stands in several of them
    is one object at the other end.

    With ``objects`` it numbers what can change: those, and behind them what it meets, which it adds
    to the list. Where the other end ``knows`` the objects, their numbers travel in their place.
    """

    def __init__(
        self,
        remote_name: RemoteName | None = None,
        objects: list[Any] | None = None,
        knows: bool = False,
    ) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self.given: Mapping[int, int] = {}
        """The places, by id, of tensors that the other end has given, and has still."""
        self.leaves_tensors = False
        """Tensors stay here from now on: what describes them travels in their place."""
        self.objects = objects
        self._knows = knows
        self._numbers = {id(obj): number for number, obj in enumerate(objects or ())}
        self._index: dict[int, int] = {}
        self._remote_name = remote_name

    def message(self) -> tuple[bytes, list[torch.Tensor]]:
        return self._file.getvalue(), self.tensors

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) in IMMUTABLE:
            return None
        if isinstance(obj, torch.Tensor):
            return self._tensor_id(seen(obj))
        if self.objects is None or obj is self.objects:
            return None
        number = self._numbers.get(id(obj))
        if self._knows:
            return None if number is None else (_KNOWN, number)
        if number is None:
            self._add(obj)
        return None

    def _add(self, obj: Any) -> int:
        """The list keeps it, so that no other object gets its id."""
        assert self.objects is not None
        number = self._numbers[id(obj)] = len(self.objects)
        self.objects.append(obj)
        return number

    def _tensor_id(self, tensor: torch.Tensor) -> Any:
        number = self._numbers.get(id(tensor))
        if number is not None:
            absent = (_ABSENT, number, description_of(tensor))
            return (_KNOWN, number) if self._knows else absent
        if self._remote_name is not None and isinstance(tensor, nn.Parameter):
            name = self._remote_name(tensor)
            if name is not None:
                return name
        index = self._index.get(id(tensor))
        if index is not None:
            return index
        if id(tensor) in self.given:
            return (_GIVEN, self.given[id(tensor)])
        if self.leaves_tensors:
            return (_ABSENT, self._add(tensor), description_of(tensor))
        index = self._index[id(tensor)] = len(self.tensors)
        self.tensors.append(tensor)
        return index


class Reader(pickle.Unpickler):
    """The trees of a message, as :class:`Writer` has packed them.

    Only for bytes that a rank of the same job has packed: unpickling runs code.
    """

    def __init__(
        self,
        definition: bytes,
        tensors: Sequence[torch.Tensor],
        find: ParameterFinder | None = None,
        known: Sequence[Any] = (),
        given: Sequence[torch.Tensor] = (),
        described: Callable[[Description], torch.Tensor] | None = None,
    ) -> None:
        self._file, self._size = io.BytesIO(definition), len(definition)
        super().__init__(self._file)
        self._tensors, self._known, self._given = tensors, known, given
        self._find, self._described = find, described
        self._absent: dict[int, torch.Tensor] = {}

    def more(self) -> bool:
        return self._file.tell() < self._size

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, int):
            return self._tensors[pid]
        if isinstance(pid, tuple):
            return self._stands_for(*pid)
        if self._find is None:
            raise pickle.UnpicklingError(f"a reference to parameter {pid} where none is expected")
        return self._find(pid)

    def _stands_for(self, kind: int, number: int, description: Description | None = None) -> Any:
        if kind == _KNOWN:
            return self._known[number]
        if kind == _GIVEN:
            return self._given[number]
        if number not in self._absent:
            if self._described is None or description is None:
                raise pickle.UnpicklingError(f"tensor {number} was left where none is expected")
            self._absent[number] = self._described(description)
        return self._absent[number]


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
    writer = Writer(remote_name)
    writer.dump(tree)
    return writer.message()


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
    return Reader(definition, tensors, find).load()


def reachable_objects(roots: Iterable[Any]) -> list[Any]:
    """Each once, in the order of the walk, which enters neither modules nor tensors. What cannot be
    pickled ends the walk from its root.

    >>> inner = [1]
    >>> [one is inner for one in reachable_objects([(inner, {"a": inner}, nn.Linear(1, 1))])]
    [True, False]
    """
    finder = _Finder(objects=[])
    for root in roots:
        with contextlib.suppress(*REFUSALS):
            finder.dump(root)
    assert finder.objects is not None
    return finder.objects


class _Finder(Writer):
    def persistent_id(self, obj: Any) -> Any:
        return 0 if isinstance(obj, (nn.Module, torch.Tensor)) else super().persistent_id(obj)
