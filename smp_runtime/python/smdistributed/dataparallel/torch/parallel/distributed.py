# SPDX-License-Identifier: Apache-2.0
"""``DistributedDataParallel`` of version 1.3 and before: PyTorch's own. Deprecated."""

from __future__ import annotations

import warnings
from typing import Any

from torch.nn.parallel import DistributedDataParallel as _TorchDistributedDataParallel

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(_TorchDistributedDataParallel):
    """PyTorch's class under its old name."""

    def __init__(self, module: Any, *args: Any, **named: Any) -> None:
        warnings.warn(
            "smdistributed.dataparallel.torch.parallel.DistributedDataParallel is deprecated; use "
            "torch.nn.parallel.DistributedDataParallel with backend='smddp'",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(module, *args, **named)
