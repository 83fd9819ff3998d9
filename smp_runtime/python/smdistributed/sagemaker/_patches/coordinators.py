# SPDX-License-Identifier: Apache-2.0
"""``coordinator_rank`` as scripts of SMP v2 mean it: a rank of the job, where
``torch.distributed.checkpoint`` takes one of the group."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker.state_handler import state

plain_save = state_dict_saver.save_state_dict
plain_load = state_dict_loader.load_state_dict


def install() -> None:
    save = _by_group(plain_save)
    load = _by_group(plain_load)
    for name, module, call in (
        ("save_state_dict", state_dict_saver, save),
        ("load_state_dict", state_dict_loader, load),
    ):
        setattr(dcp, name, call)
        setattr(module, name, call)


def rank_in_group(group: dist.ProcessGroup | None, coordinator: int) -> int:
    """The rank in ``group`` of the job's rank ``coordinator``; 0, the default of all calls, is also
    the first of any group."""
    if group is None:
        return coordinator
    ranks = dist.get_process_group_ranks(group)
    if coordinator in ranks:
        return ranks.index(coordinator)
    if coordinator == 0:
        return 0
    raise SMPValidationError(
        f"coordinator_rank is {coordinator}; expected a rank of the job that is in the process "
        f"group, {ranks}"
    )


def _by_group(plain: Any) -> Any:
    @functools.wraps(plain)
    def call(
        state_dict: Any,
        storage: Any = None,
        process_group: dist.ProcessGroup | None = None,
        coordinator_rank: int = 0,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        name = "storage_writer" if plain is plain_save else "storage_reader"
        storage = kwargs.pop(name, storage)
        if state.is_initialized:
            coordinator_rank = rank_in_group(process_group, coordinator_rank)
        return plain(state_dict, storage, process_group, coordinator_rank, *args, **kwargs)

    return call
