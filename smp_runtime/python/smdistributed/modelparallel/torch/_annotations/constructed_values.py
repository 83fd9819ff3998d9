# SPDX-License-Identifier: Apache-2.0
"""Notes the values that constructors leave in parameters, to tell them later from loaded ones.

A module's constructor is through when its parent takes it in. Of each of its parameters some
elements are kept then, or, where it has no storage, the number of its writes.

What ``torch.empty`` returns holds what happens to lie there, which no one can tell from values. So
it is filled with NaN while a script builds modules that are to be split, and a parameter that still
holds the filling was never initialised, by whatever means others write: in place, through
``.data``, from other threads.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils._python_dispatch import TorchDispatchMode

from smdistributed.modelparallel.torch._delayed.delayed_parameters import writes_to

_RECORD = "_smp_constructed"
_SAMPLES = 4096  # all elements of biases and norms, which are near what constructors make of them


@contextmanager
def noting_constructed() -> Iterator[None]:
    """Inside, modules remember what their constructors left in their parameters.

    >>> with noting_constructed():
    ...     model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> _ = model[1].weight.data.normal_()
    >>> is_as_constructed(model[0], "weight"), is_as_constructed(model[1], "weight")
    (True, False)
    >>> is_as_constructed(nn.Linear(2, 2), "weight") is None
    True
    """

    def note(_parent: nn.Module, _name: str, child: nn.Module | None) -> None:
        if child is not None:
            note_constructed(child)

    handle = register_module_module_registration_hook(note)
    try:
        yield
    finally:
        handle.remove()


def note_constructed(module: nn.Module) -> None:
    """Notes the values that the own parameters of ``module`` have now, unless that was done."""
    record = module.__dict__.setdefault(_RECORD, {})
    for name, parameter in module._parameters.items():
        if parameter is not None and name not in record:
            record[name] = _mark(parameter)


def is_as_constructed(module: nn.Module, name: str) -> bool | None:
    """True if the parameter ``name`` of ``module`` has the values of its constructor; None if these
    are not known."""
    then = module.__dict__.get(_RECORD, {}).get(name)
    if then is None:
        return None
    now = _mark(module._parameters[name])
    if isinstance(then, torch.Tensor) and isinstance(now, torch.Tensor):
        return torch.equal(then.to(now), now)
    return type(then) is type(now) and bool(then == now)


def forget_constructed(root: nn.Module) -> None:
    """Drops what the modules of ``root`` remember."""
    for module in root.modules():
        module.__dict__.pop(_RECORD, None)


def _mark(parameter: torch.Tensor | None) -> torch.Tensor | int | None:
    if parameter is None:
        return None
    if parameter.is_meta:
        return writes_to(parameter)
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLES)][:_SAMPLES].clone()


_EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


class _Filling(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._filled: list[weakref.ref[torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and result.is_floating_point() and not result.is_meta:
            result.fill_(math.nan)
            self._filled.append(weakref.ref(result))
        return result

    def clear(self) -> None:
        """A parameter is another tensor on the same memory; what is still there itself is a buffer
        or an attribute, of which scripts may multiply what they never wrote by zero."""
        for reference in self._filled:
            tensor = reference()
            if tensor is not None and not isinstance(tensor, torch.nn.Parameter):
                tensor.masked_fill_(tensor.isnan(), 0)


@contextmanager
def filled_with_nan() -> Iterator[None]:
    """Inside, floating-point memory begins as NaN; afterwards only that of parameters still is.

    >>> with filled_with_nan():
    ...     layer = torch.nn.utils.skip_init(torch.nn.Linear, 2, 2)
    ...     buffer = torch.empty(2)
    >>> unwritten_part(layer.weight), unwritten_part(torch.nn.Linear(2, 2).weight)
    (1.0, 0.0)
    >>> buffer
    tensor([0., 0.])
    """
    filling = _Filling()
    try:
        with filling:
            yield
    finally:
        with torch.no_grad():
            filling.clear()


def unwritten_part(tensor: torch.Tensor) -> float:
    """Share of a tensor that was never written, from 0 to 1."""
    if not tensor.is_floating_point() or not bool(tensor.detach().sum().isnan()):
        return 0.0
    return float(tensor.detach().isnan().sum()) / tensor.numel()
