# SPDX-License-Identifier: Apache-2.0
"""Memory that nobody has written: NaN, while a script builds modules that are to be split.

What ``torch.empty`` returns holds what happens to lie there, which no one can tell from values. So
it is filled here, and a parameter that still holds the filling was never initialised, by whatever
means others write: in place, through ``.data``, from other threads.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
