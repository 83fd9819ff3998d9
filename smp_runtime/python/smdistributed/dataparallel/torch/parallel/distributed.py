# SPDX-License-Identifier: Apache-2.0
"""``DistributedDataParallel`` of version 1.3 and before: PyTorch's own. Deprecated."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as _TorchDistributedDataParallel

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(_TorchDistributedDataParallel):
    """PyTorch's class under its old name, with the old order of arguments; PyTorch's others by
    name."""

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        broadcast_buffers: bool = True,
        process_group: dist.ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        **named: Any,
    ) -> None:
        warnings.warn(
            "smdistributed.dataparallel.torch.parallel.DistributedDataParallel is deprecated; use "
            "torch.nn.parallel.DistributedDataParallel with backend='smddp'",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(
            module,
            device_ids,
            output_device,
            broadcast_buffers=broadcast_buffers,
            process_group=process_group,
            bucket_cap_mb=bucket_cap_mb,
            **named,
        )
