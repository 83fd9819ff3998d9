# SPDX-License-Identifier: Apache-2.0
"""The model wrapper of version 1.3 and before. Deprecated."""

from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
