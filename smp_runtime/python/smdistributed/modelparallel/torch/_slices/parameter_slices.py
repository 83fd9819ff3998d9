# SPDX-License-Identifier: Apache-2.0
"""The tensor-parallel group of this rank, and the layout of parameters over it.

The one place that knows the layout: state dicts, checkpoints, clipping and both reducers ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks.log import info
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError
from smdistributed.modelparallel.torch.state_mod import state


def tp_size() -> int:
    """Number of ranks over which a distributed module is split."""
    return len(state.require_initialized("a distributed module").groups.ranks("TP"))


def tp_rank() -> int:
    """Number of this rank among them."""
    return state.require_initialized("a distributed module").groups.index("TP")


def exchange() -> _runtime.TensorExchange:
    """The collectives of the group. First use is collective over it.

    In a trace it is one that sends nothing: shapes are all that is asked for, and ranks may be
    alone with it.
    """
    if state.is_tracing:
        return _runtime.TensorExchange("", tp_size(), tp_rank())
    if state.tensor_exchange is None:
        name = state.internal_group_name("TP") if tp_size() > 1 else ""
        limit = _exchanges_under_way() if name else -1
        session = state.require_initialized("a distributed module")
        state.tensor_exchange = _runtime.TensorExchange(
            name, tp_size(), tp_rank(), limit, session.barriers.watch, session.recorder
        )
    return state.tensor_exchange


def _exchanges_under_way() -> int:
    options = state.require_initialized("a distributed module").options
    limit = options.exchanges_under_way
    if options.exchanges_are_set and not torch.cuda.is_available():
        info(f"SMP_NCCL_THROTTLE_LIMIT={limit} changes nothing without a GPU: exchanges of tensors "
             "of the CPU are made one after the other")  # fmt: skip
    return limit


def same_batches() -> bool:
    """True if all ranks of the group are fed the same batch (``prescaled_batch``)."""
    return bool(state.cfg.prescaled_batch)


def slices_activations() -> bool:
    """True if activations between layers are sliced, too (``optimize: memory``)."""
    return bool(state.cfg.optimize == "memory")


_ATTRIBUTE = "_smp_spread"


@dataclass(frozen=True)
class Spread:
    """``axis``: along which every rank holds a slice; None: all hold the whole.
    ``scaled_batch``: the gradient is that of the batches of the whole group, and the same on all
    its ranks that hold the same numbers: it is averaged over the reduced data-parallel group."""

    axis: int | None = None
    scaled_batch: bool = False


def set_spread(parameter: torch.Tensor, axis: int | None, scaled_batch: bool = True) -> None:
    """Notes on the tensor how it lies; a tensor without a note is whole and everybody's own."""
    parameter.__dict__[_ATTRIBUTE] = Spread(axis, scaled_batch)


def spread_of(parameter: torch.Tensor) -> Spread:
    """Layout of a parameter or buffer.

    >>> spread_of(torch.nn.Parameter(torch.zeros(2)))
    Spread(axis=None, scaled_batch=False)
    """
    spread: Spread = parameter.__dict__.get(_ATTRIBUTE, Spread())
    return spread


def distribution_axis(parameter: torch.Tensor) -> int | None:
    """The axis along which this rank holds a slice; None: it holds the whole, as on one tensor
    rank."""
    axis = spread_of(parameter).axis
    return None if axis is None or tp_size() == 1 else axis


def is_scaled_batch(parameter: torch.Tensor) -> bool:
    """True if the gradient sees the batches of other ranks, too: of the whole tensor-parallel
    group, if it has several."""
    return spread_of(parameter).scaled_batch and tp_size() > 1


def require_divisible(owner: str, **sizes: int) -> None:
    """Raises SMPTensorParallelError if a size does not divide by the number of tensor ranks."""
    for name, size in sizes.items():
        if size % tp_size():
            raise SMPTensorParallelError(
                f"{owner}: {name} {size} does not divide by tensor_parallel_degree {tp_size()}"
            )


def slice_of(whole: torch.Tensor, axis: int | None) -> torch.Tensor:
    """This rank's slice of a whole tensor: a view of it.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> slice_of(torch.arange(4), 0)
    tensor([0, 1, 2, 3])
    >>> smp.shutdown()
    """
    if axis is None:
        return whole
    require_divisible("a slice of a tensor", **{f"dim {axis}": whole.shape[axis]})
    length = whole.shape[axis] // tp_size()
    return whole.narrow(axis, tp_rank() * length, length)


def shape_of_slice(shape: Sequence[int], axis: int | None) -> list[int]:
    """The shape of this rank's slice of a whole tensor."""
    own = list(shape)
    if axis is not None:
        require_divisible("a slice of a tensor", **{f"dim {axis}": own[axis]})
        own[axis] //= tp_size()
    return own


def whole_of(piece: torch.Tensor, axis: int | None) -> torch.Tensor:
    """The whole of which every tensor rank holds a slice. Collective over the group."""
    if axis is None:
        return piece
    return exchange().move(_runtime.Redistribution.gather(axis), piece.detach())
