# SPDX-License-Identifier: Apache-2.0
"""Small helpers that scripts import from here."""

from __future__ import annotations

import torch

from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch.state_mod import state


def rmsg(message: str) -> str:
    """``message`` with this rank before it.

    >>> rmsg("here")
    '[rank ?] here'
    """
    rank = state.require_initialized("rmsg").ranks.rank if state.initialized else "?"
    return f"[rank {rank}] {message}"


def get_distribution_axis(param: torch.nn.Parameter) -> int | None:
    """The axis along which a parameter is split over tensor-parallel ranks; None: it is whole.

    >>> get_distribution_axis(torch.nn.Parameter(torch.zeros(2)))
    """
    return distribution_axis(param)
