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


def occupy(seconds: float) -> None:
    """Returns `seconds` later; other threads may run meanwhile."""
    end = time.perf_counter() + seconds
    if seconds > _AWAKE_SECONDS:
        time.sleep(seconds - _AWAKE_SECONDS)
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
    """`x`, after as many seconds as `forward` says; its backward takes as many as `backward`."""
    result: torch.Tensor = _Occupied.apply(x, forward, backward)
    return result
