# SPDX-License-Identifier: Apache-2.0
"""The random numbers of a process, to draw the same once more."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

RandomState = tuple[torch.Tensor, Any, Any]


def random_state() -> RandomState:
    """State of the random generators of torch on the CPU, of Python and of NumPy."""
    numpy = sys.modules.get("numpy.random")
    return torch.get_rng_state(), random.getstate(), None if numpy is None else numpy.get_state()


def set_random_state(values: RandomState) -> None:
    """Sets the generators to such a state."""
    torch.set_rng_state(values[0])
    random.setstate(values[1])
    if values[2] is not None:
        import numpy as np  # noqa: PLC0415 - only where the script did

        np.random.set_state(values[2])


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, what is drawn is not missing afterwards.

    >>> torch.manual_seed(0) and None
    >>> with undisturbed():
    ...     first = torch.rand(1)
    >>> torch.equal(torch.rand(1), first)
    True
    """
    kept = random_state()
    try:
        yield
    finally:
        set_random_state(kept)
