# SPDX-License-Identifier: Apache-2.0
"""Importing this registers the backend ``smddp`` with ``torch.distributed``.

    import smdistributed.dataparallel.torch.torch_smddp
    torch.distributed.init_process_group("smddp")

Under a plain ``mpirun python`` it also sets the rank variables (``RANK``, ``LOCAL_RANK``, ...)
that are not set yet.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from smdistributed._smddp import create_backend
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


def _register() -> None:
    os.environ.update(rank_variables(os.environ))
    if BACKEND not in dist.Backend.backend_list:
        # A list: torch takes a text apart into letters.
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


_register()
