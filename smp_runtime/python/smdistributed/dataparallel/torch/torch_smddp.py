# SPDX-License-Identifier: Apache-2.0
"""Importing this registers the backend ``smddp`` with ``torch.distributed``.

    import smdistributed.dataparallel.torch.torch_smddp
    torch.distributed.init_process_group("smddp")

Under a plain ``mpirun python`` it also sets the rank variables (``RANK``, ``LOCAL_RANK``, ...)
that are not set yet.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

import torch
import torch.distributed as dist

from smdistributed._smddp import create_backend, leave
from smdistributed.dataparallel.torch.launch_ranks import rank_variables

#: The backend's name.
BACKEND = "smddp"


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


def _register() -> None:
    os.environ.update(rank_variables(os.environ))
    if BACKEND not in dist.Backend.backend_list:
        # A list: torch takes a text apart into letters.
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
        atexit.register(_leave_all)


_register()
