# SPDX-License-Identifier: Apache-2.0
"""Registers the backend "smddp"; not there yet, so that importing this raises."""

from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedImportError

raise SMPUnsupportedImportError(
    "the torch.distributed backend smddp is not available yet in this version; use backend "
    '"nccl" on GPUs or "gloo" on CPUs'
)
