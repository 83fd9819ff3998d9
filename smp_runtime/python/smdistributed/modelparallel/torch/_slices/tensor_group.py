# SPDX-License-Identifier: Apache-2.0
"""The tensor-parallel group of this rank, and how jobs feed it."""

from __future__ import annotations

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session.log import info
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
            name, tp_size(), tp_rank(), limit, session.barriers.watch
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
