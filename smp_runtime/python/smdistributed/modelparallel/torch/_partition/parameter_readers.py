# SPDX-License-Identifier: Apache-2.0
"""Modules that compute with parameters of modules below them by themselves, as torch's
``TransformerEncoderLayer`` does in its fast path: those must be where their reader is.

The trace shows what one run reads. What other branches read, as in evaluation, the code shows.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Mapping
from typing import Any

from torch import nn

Reads = Mapping[nn.Module, set[nn.Module]]

#: Properties of a parameter that can be asked for while its values are elsewhere.
_PROPERTIES = {
    *("shape", "dtype", "device", "ndim", "requires_grad", "grad", "is_cuda", "layout", "size"),
    *("dim", "numel", "is_floating_point", "element_size", "data_ptr"),
}
_SKIPPED = {"CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL", "RESUME"}


def joined_modules(model: nn.Module, traced: Reads) -> set[nn.Module]:
    """Modules that must go where a module above them goes.

    A module that reads what most of the model has, such as a penalty on all weights, joins nothing:
    the model would be on one partition. Its step says what is wrong.
    """
    holders = [module for module in model.modules() if _own_parameters(module)]
    joined: set[nn.Module] = set()
    for reader in model.modules():
        read = {
            one for one in traced.get(reader, set()) | reads_in_code(reader) if one is not reader
        }
        below = set(reader.modules())
        read &= below
        if read and len(read) * 2 <= len(holders):
            joined |= _between(reader, read)
            if below.intersection(holders) <= joined | {reader}:
                joined |= below - {reader}
    return joined


def _own_parameters(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module._parameters.values() if parameter is not None]


def _between(reader: nn.Module, read: set[nn.Module]) -> set[nn.Module]:
    """The modules ``read``, and those on the way to them."""
    return {
        module
        for module in reader.modules()
        if module is not reader and not read.isdisjoint(module.modules())
    }


def reads_in_code(module: nn.Module) -> set[nn.Module]:
    """The modules of whose parameters the forward of ``module`` has something like
    ``self.child.weight``, also in methods that it calls.

    >>> reader = nn.TransformerEncoderLayer(8, 2)
    >>> reader.linear1 in reads_in_code(reader), reader.dropout in reads_in_code(reader)
    (True, False)
    """
    found: set[nn.Module] = set()
    seen: set[str] = set()
    waiting = ["forward"]
    while waiting:
        name = waiting.pop()
        function = getattr(type(module), name, None)
        if name not in seen and isinstance(function, types.FunctionType):
            seen.add(name)
            code = _Walk(module, function)
            found |= code.read
            waiting += code.methods
    return found


class _Walk:
    """One function's chains of attributes that begin with its first argument."""

    def __init__(self, module: nn.Module, function: types.FunctionType) -> None:
        self.read: set[nn.Module] = set()
        self.methods: list[str] = []
        self._module = module
        self._at: nn.Module | None = None
        self._parameter_of: nn.Module | None = None
        own = function.__code__.co_varnames[:1]
        for instruction in dis.get_instructions(function):
            if instruction.opname in _SKIPPED:
                continue
            if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                self._attribute(str(instruction.argval))
            else:
                self._end()
                loaded = instruction.argval
                last = loaded[-1:] if isinstance(loaded, tuple) else (loaded,)
                if instruction.opname.startswith("LOAD_FAST") and last == own:
                    self._at = module
        self._end()

    def _attribute(self, name: str) -> None:
        if self._parameter_of is not None and name in _PROPERTIES:
            self._parameter_of = None
        self._end(keep=self._at)
        at: Any = self._at
        self._at = None
        if at is None:
            return
        if name in at._modules:
            self._at = at._modules[name]
        elif name in at._parameters:
            self._parameter_of = at
        elif at is self._module:
            self.methods.append(name)

    def _end(self, keep: nn.Module | None = None) -> None:
        if self._parameter_of is not None:
            self.read.add(self._parameter_of)
        self._parameter_of, self._at = None, keep
