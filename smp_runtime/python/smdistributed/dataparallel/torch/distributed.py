# SPDX-License-Identifier: Apache-2.0
"""The interface of version 1.3 and before, on ``torch.distributed``. Deprecated."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import (
    all_gather,
    barrier,
    get_rank,
    get_world_size,
    group,
    is_initialized,
    reduce,
)

from smdistributed.dataparallel.torch import torch_smddp

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
    "reduce",
]

warnings.warn(
    "smdistributed.dataparallel.torch.distributed is deprecated; import "
    "smdistributed.dataparallel.torch.torch_smddp and use torch.distributed with backend='smddp'",
    DeprecationWarning,
    stacklevel=2,
)


class ReduceOp(dist.ReduceOp):
    """PyTorch's operations; its ``AVG`` had another name here."""

    AVERAGE = dist.ReduceOp.AVG


# The default of each `group` is group.WORLD, which torch takes None for.


def init_process_group(*_args: Any, **_named: Any) -> None:
    """Joins the job; what was passed was ignored by version 1.3, too."""
    if not dist.is_initialized():
        dist.init_process_group(torch_smddp.BACKEND)


def is_available() -> bool:
    """True if this is a rank of a job; False in a script that no launcher started."""
    return dist.is_initialized() or {"RANK", "WORLD_SIZE"} <= os.environ.keys()


def get_local_rank() -> int:
    """Number of this process among those of its host.

    Raises RuntimeError if no launcher said it.
    """
    if "LOCAL_RANK" not in os.environ:
        raise RuntimeError("LOCAL_RANK is not set; start the script with mpirun or torchrun")
    return int(os.environ["LOCAL_RANK"])


def all_reduce(
    tensor: torch.Tensor,
    op: Any = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    """PyTorch's, for which ``op=None`` is a sum, too."""
    return dist.all_reduce(tensor, ReduceOp.SUM if op is None else op, group, async_op)


def broadcast(
    tensor: torch.Tensor,
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    """PyTorch's, from rank 0 where nobody says otherwise."""
    return dist.broadcast(tensor, src, group, async_op)


def all_to_all_single(
    output_t: torch.Tensor,
    input_t: torch.Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    """PyTorch's, whose tensors have other names."""
    return dist.all_to_all_single(
        output_t, input_t, output_split_sizes, input_split_sizes, group, async_op
    )
