# SPDX-License-Identifier: Apache-2.0
"""Makes the backend ``smddp`` known to ``torch.distributed``; sets no variables of ranks."""

from __future__ import annotations

import atexit
import sys
from typing import Any

import torch
import torch.distributed as dist

from smdistributed._smddp import create_backend, leave, set_fabric_defaults

#: The backend's name.
BACKEND = "smddp"


def _backend_of(group: Any) -> Any:
    """Moves the group's CPU tensors; None if nothing does."""
    try:
        return group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return None


def _create(options: Any, _backend_options: object) -> Any:
    return create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        list(options.global_ranks_in_group),
        # The group of the job knows which ranks have ended; there is none while it is made itself.
        job=_backend_of(dist.group.WORLD) if dist.is_initialized() else None,
    )


def _leave_all() -> None:
    """At the end of a script that does not: other hosts must not take it for a failure."""
    if not dist.is_initialized():
        return
    failed = getattr(sys, "last_value", None) is not None  # an exception ended the script
    for group in list(dist.distributed_c10d._world.pg_map):
        leave(_backend_of(group), failed)


def register() -> None:
    """Without effect when it is registered."""
    set_fabric_defaults()
    if BACKEND not in dist.Backend.backend_list:
        # A list: torch takes a text apart into letters.
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
        atexit.register(_leave_all)
