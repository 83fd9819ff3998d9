# SPDX-License-Identifier: Apache-2.0
"""Work of a device that this machine does not have: it takes its time and no processor, so that
more ranks overlap than there are processors."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import torch

#: The kernel wakes a sleeper up to 50 us late unless told otherwise, and a processor that has gone
#: idle takes as long again; a device does neither. The last of an emulated time is waited awake.
_AWAKE_SECONDS = 0.0002
_PR_SET_TIMERSLACK = 29

ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # threads started from here on inherit it


def occupy(seconds: float, since: float | None = None) -> None:
    """Returns `seconds` after `since`, a reading of time.perf_counter(); after now unless given.
    Other threads may run meanwhile."""
    end = (time.perf_counter() if since is None else since) + seconds
    left = end - time.perf_counter()
    if left > _AWAKE_SECONDS:
        time.sleep(left - _AWAKE_SECONDS)
    while time.perf_counter() < end:
        time.sleep(0)  # gives Python's lock away


class _Occupied(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, forward: Callable[[], float], backward: Callable[[], float]
    ) -> torch.Tensor:
        ctx.seconds = backward
        occupy(forward())
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        occupy(ctx.seconds())
        return gradient * 1.0, None, None


def compute(
    x: torch.Tensor, forward: Callable[[], float], backward: Callable[[], float]
) -> torch.Tensor:
    """`x`, as many seconds later as `forward` says; its backward waits as many as `backward`."""
    result: torch.Tensor = _Occupied.apply(x, forward, backward)
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        forward: Callable[[], float],
        backward: Callable[[], float],
    ) -> torch.Tensor:
        began = time.perf_counter()
        ctx.save_for_backward(x, weight)
        ctx.seconds = backward
        result = x * weight
        occupy(forward(), began)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        began = time.perf_counter()
        x, weight = ctx.saved_tensors
        gradients = (
            (gradient * weight).sum_to_size(x.shape),
            (gradient * x).sum_to_size(weight.shape),
        )
        occupy(ctx.seconds(), began)
        return *gradients, None, None


def multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    forward: Callable[[], float],
    backward: Callable[[], float],
) -> torch.Tensor:
    """`x * weight`, as a layer of which that is all the work: its forward takes as many seconds as
    `forward` says, its backward as many as `backward`."""
    result: torch.Tensor = _Product.apply(x, weight, forward, backward)
    return result
