# SPDX-License-Identifier: Apache-2.0
"""``torch.sagemaker.init``: settings checked, groups made."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPNotInitializedError
from smdistributed.sagemaker import _cuda_calls_on_cpu
from smdistributed.sagemaker._ranker import Ranker, placement_warning
from smdistributed.sagemaker._settings import of_script
from smdistributed.sagemaker.logger import get_logger
from smdistributed.sagemaker.state_handler import state


def init(config: Mapping[str, Any] | str | os.PathLike[str] | None = None) -> None:
    """Reads and checks the settings, and makes the process groups. All ranks call it, after
    ``torch.distributed.init_process_group``.

    Args:
        config: settings by key, or the path of a JSON file with them. Parameters of the estimator
            go before them, and what the script wrote to ``torch.sagemaker.state`` before both.

    Raises:
        SMPConfigError: a key or value that is not known, degrees that do not fit each other or the
            number of ranks, expert or context parallelism, a second call with other settings, or a
            model that FSDP has wrapped before.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dist.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
    ...     init({"hybrid_shard_degree": 1})
    ...     dist.destroy_process_group()
    >>> is_initialized(), state.ranker.get_rep_groups()
    (True, [[0]])
    >>> state.reset()
    """
    merged = state.merged(of_script(config))
    if state.is_initialized:
        changed = _runtime.settings_differences(merged.as_json(), state.config.as_json())
        if changed:
            raise SMPConfigError(
                "torch.sagemaker.init was called a second time with other settings than the first: "
                + ", ".join(changed)
            )
        return
    if not dist.is_initialized():
        raise SMPNotInitializedError(
            "torch.sagemaker.init() comes before torch.distributed.init_process_group(); call it "
            "after"
        )
    state.refuse_early()
    _runtime.validate_v2_world(merged, dist.get_world_size())
    if dist.get_rank() == 0:
        for warning in merged.warnings:
            get_logger().warning("%s", warning)
    if _cuda_calls_on_cpu.is_asked_for():
        _cuda_calls_on_cpu.replace_flash_attention()
    state.config = merged
    try:
        _make_groups()
    except BaseException:
        state.reset()
        raise


def is_initialized() -> bool:
    """True after ``init``."""
    return state.is_initialized


def own_group(groups: list[list[int]]) -> dist.ProcessGroup | None:
    """The group of this rank among ``groups``, all of which are made; all ranks call it."""
    own: Any = None
    for ranks in groups:
        group = dist.new_group(ranks)
        if state.rank in ranks:
            own = group
    found: dist.ProcessGroup | None = own
    return found


def _make_groups() -> None:
    state.world_process_group = dist.group.WORLD
    if state.tp_size > 1:
        state.tp_process_group = own_group(state.ranker.tensor_groups())
    if state.set_shard_degree is None:
        return
    make_shard_groups()
    if state.tp_size == 1:
        state.rep_rank_process_group = state.shard_process_group
    else:
        state.rep_rank_process_group = own_group(state.ranker.blocks())


def make_shard_groups() -> None:
    """Makes the groups that shard a copy and those that hold the same shard."""
    ranker = state.ranker
    _warn_of_hosts(ranker)
    state.shard_process_group = own_group(ranker.shard_groups())
    state.replica_process_group = own_group(ranker.get_rep_groups())


def _warn_of_hosts(ranker: Ranker) -> None:
    # By the store: collectives over objects would ask for a GPU, which scripts choose later.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"torch.sagemaker/host/{state.rank}", socket.gethostname())
    if state.rank != 0:
        return
    keys = [f"torch.sagemaker/host/{rank}" for rank in range(state.world_size)]
    warning = placement_warning(ranker, [store.get(key).decode() for key in keys])
    if warning is not None:
        get_logger().warning("%s", warning)
