# SPDX-License-Identifier: Apache-2.0
"""Redistribution of activations in distributed modules.

Inside a *region*, between ``enter`` and ``leave``, the batches of all tensor ranks are one, and
hidden states lie in one of two ways: whole on every rank, each of which does the same to them
(``optimize: speed``), or sliced along their last dim (``memory``). ``to_columns`` and ``from_rows``
stand around a pair of linear layers, of which the first is split by output and the second by input.

Every redistribution forward has its dual backward, in C++ (tensor_parallel/redistribution.h).
Gradients in a region are those of the mean of the ranks' losses.
"""

from __future__ import annotations

from functools import cache

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    exchange,
    same_batches,
    slices_activations,
    tp_size,
)

_STAY = _runtime.Redistribution.stay()
_SUM = _runtime.Redistribution.all_reduce()
_GATHER_BATCH, _SLICE_BATCH = _runtime.Redistribution.gather(0), _runtime.Redistribution.slice(0)
_SCATTER_BATCH = _runtime.Redistribution.reduce_scatter(0)
_GATHER_HIDDEN, _SLICE_HIDDEN = (
    _runtime.Redistribution.gather(-1),
    _runtime.Redistribution.slice(-1),
)
_SCATTER_HIDDEN = _runtime.Redistribution.reduce_scatter(-1)
_TO_SLICES = _runtime.Redistribution.exchange(dim=-1, join=0)
_TO_BATCHES = _runtime.Redistribution.exchange(dim=0, join=-1)


@cache
def _mapping(
    forward: _runtime.Redistribution, backward: _runtime.Redistribution, scale: float
) -> _runtime.RegionMapping:
    return _runtime.RegionMapping(forward, backward, scale)


def _cross(
    tensor: torch.Tensor,
    forward: _runtime.Redistribution,
    backward: _runtime.Redistribution,
    scale: float = 1.0,
) -> torch.Tensor:
    if tp_size() == 1:
        return tensor
    return exchange().cross(_mapping(forward, backward, scale), tensor)


def enter_sliced(tensor: torch.Tensor) -> torch.Tensor:
    """[B, .., H] of each rank's own batch -> [tB, .., H/t]; with prescaled batches, B is tB."""
    if same_batches():
        return _cross(tensor, _SLICE_HIDDEN, _GATHER_HIDDEN)
    return _cross(tensor, _TO_SLICES, _TO_BATCHES, tp_size())


def leave_sliced(tensor: torch.Tensor) -> torch.Tensor:
    """[tB, .., H/t] -> [B, .., H]."""
    if same_batches():
        return _cross(tensor, _GATHER_HIDDEN, _SLICE_HIDDEN)
    return _cross(tensor, _TO_BATCHES, _TO_SLICES, 1 / tp_size())


def leave_summed(tensor: torch.Tensor) -> torch.Tensor:
    """[tB, .., H], of which each rank has a summand -> the sum, [B, .., H]."""
    if same_batches():
        return _cross(tensor, _SUM, _STAY)
    return _cross(tensor, _SCATTER_BATCH, _GATHER_BATCH, 1 / tp_size())


def enter_whole(tensor: torch.Tensor) -> torch.Tensor:
    """[B, .., H] of each rank's own batch -> [tB, .., H], the same on all ranks."""
    if same_batches():
        return tensor
    return _cross(tensor, _GATHER_BATCH, _SLICE_BATCH, tp_size())


def leave_whole(tensor: torch.Tensor) -> torch.Tensor:
    """[tB, .., H], the same on all ranks -> [B, .., H] of each rank's own batch."""
    if same_batches():
        return tensor
    return _cross(tensor, _SLICE_BATCH, _GATHER_BATCH, 1 / tp_size())


def enter(hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states of each rank's own batch -> as they lie in a region."""
    return enter_sliced(hidden) if slices_activations() else enter_whole(hidden)


def leave(hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states in a region -> those of each rank's own batch."""
    return leave_sliced(hidden) if slices_activations() else leave_whole(hidden)


def enter_constant(tensor: torch.Tensor | None, batch: int) -> torch.Tensor | None:
    """Gathers a tensor without gradient, such as a mask or token numbers: all batches one behind
    the other.

    A tensor whose dim 0 is 1 and not the batch of the hidden states is for all samples alike.
    """
    if tensor is None or tp_size() == 1 or same_batches():
        return tensor
    if tensor.shape[0] == 1 and batch > 1:
        return tensor
    return exchange().move(_GATHER_BATCH, tensor)


def to_columns(hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states in a region -> whole, for layers that are split by output."""
    if slices_activations():
        return _cross(hidden, _GATHER_HIDDEN, _SCATTER_HIDDEN)
    return _cross(hidden, _STAY, _SUM)


def from_rows(partial: torch.Tensor) -> torch.Tensor:
    """Each rank's summand from a layer that is split by input -> hidden states in a region."""
    if slices_activations():
        return _cross(partial, _SCATTER_HIDDEN, _GATHER_HIDDEN)
    return _cross(partial, _SUM, _STAY)


def sum_of_slices(partial: torch.Tensor) -> torch.Tensor:
    """Each rank's result of its slice of hidden states -> the sum over the slices, which each uses
    for its own slice again."""
    return _cross(partial, _SUM, _SUM)


def used_in_parts(parameter: torch.Tensor) -> torch.Tensor:
    """A parameter that is whole on all ranks, each of which uses it for a part of its own, such as
    its heads: its gradient is the sum of theirs."""
    return _cross(parameter, _STAY, _SUM)


def enter_vocabulary(hidden: torch.Tensor) -> torch.Tensor:
    """[B, .., H] of each rank's own batch -> [tB, .., H] for a layer that is split by output."""
    if same_batches():
        return _cross(hidden, _STAY, _SUM)
    return _cross(hidden, _GATHER_BATCH, _SCATTER_BATCH, tp_size())
