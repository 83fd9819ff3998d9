# SPDX-License-Identifier: Apache-2.0
"""The interface of version 1.3 and before, on ``torch.distributed``. Deprecated."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch.distributed as dist
from torch.distributed import (
    ReduceOp,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    get_rank,
    get_world_size,
    is_initialized,
    reduce,
)

from smdistributed.dataparallel.torch import torch_smddp

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_rank",
    "get_world_size",
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


def init_process_group(*_args: Any, **_named: Any) -> None:
    """Joins the job; what was passed was ignored by version 1.3, too."""
    if not dist.is_initialized():
        dist.init_process_group(torch_smddp.BACKEND)


def is_available() -> bool:
    """True: this module could be imported."""
    return True


def get_local_rank() -> int:
    """Number of this process among those of its host.

    Raises RuntimeError if no launcher said it.
    """
    if "LOCAL_RANK" not in os.environ:
        raise RuntimeError("LOCAL_RANK is not set; start the script with mpirun or torchrun")
    return int(os.environ["LOCAL_RANK"])
