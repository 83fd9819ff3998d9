# SPDX-License-Identifier: Apache-2.0
"""``tensor.new_tensor`` and ``tensor.new`` of sharded parameters, which torch makes by the first
dispatch key of a tensor and not by its device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_NAMES = ("new", "new_tensor")
_WATCHED: Any = torch._C._parse_dispatch_key("DeferredInit")  # as in sharding/value_reads.h


def offer_plain_constructors() -> None:
    """From now on they work in this process for tensors whose values may be elsewhere."""
    for name in _NAMES:
        function = getattr(torch.Tensor, name)
        if not hasattr(function, "__wrapped__"):
            setattr(torch.Tensor, name, _of_plain(function))


def _of_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def construct(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch._C._dispatch_keys(tensor).has(_WATCHED):
            tensor = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return function(tensor, *args, **kwargs)

    return construct
