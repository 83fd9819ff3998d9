# SPDX-License-Identifier: Apache-2.0
"""Makes the backend ``smddp`` known to ``torch.distributed``; sets no variables of ranks."""

from __future__ import annotations

import atexit
import os
from typing import Any

import torch
import torch.distributed as dist

from smdistributed._smddp import create_backend, leave

#: The backend's name.
BACKEND = "smddp"
#: What libfabric reads once, when it starts.
_FABRIC_SETTINGS = {
    # Over TCP it cuts longer messages into pieces of 16 KiB and waits for answers between them,
    # which leaves a slow network idle for a third of the time.
    "FI_OFI_RXM_EAGER_LIMIT": str(2**18),
    # Over EFA, memory that the device writes to must stay the parent's when a DataLoader forks.
    "FI_EFA_FORK_SAFE": "1",
}


def _create(options: Any, _backend_options: object) -> Any:
    return create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        list(options.global_ranks_in_group),
    )


def _leave_all() -> None:
    """At the end of a script that does not: other hosts must not take it for a failure."""
    if not dist.is_initialized():
        return
    for group in list(dist.distributed_c10d._world.pg_map):
        try:
            backend = group._get_backend(torch.device("cpu"))
        except RuntimeError:  # a group without one for the CPU
            continue
        leave(backend)


def register() -> None:
    """Without effect when it is registered."""
    for name, value in _FABRIC_SETTINGS.items():
        os.environ.setdefault(name, value)
    if BACKEND not in dist.Backend.backend_list:
        # A list: torch takes a text apart into letters.
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
        atexit.register(_leave_all)
