# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of FSDP by the calls of SMP 2.0 to 2.6."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.api import ShardedOptimStateDictConfig

from smdistributed.sagemaker._patches.optimizer_loading import load_sharded_optimizer_state_dict
from smdistributed.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemReader
from smdistributed.sagemaker.distributed.checkpoint.state_dict_loader import load
from smdistributed.sagemaker.distributed.checkpoint.state_dict_saver import save
from smdistributed.sagemaker.logger import get_logger

EXPORT_KEY_MODEL = "model"
EXPORT_KEY_OPTIMIZER = "optimizer"
EXPORT_KEY_SCHEDULER = "scheduler"
EXPORT_KEY_IDENTITY = "identity"
#: The group that shards the model, the rank that writes what is common, whether this rank saves.
Ranks = tuple[dist.ProcessGroup | None, int, bool]


def save_model_checkpoint(
    model: nn.Module,
    state_dict_type: StateDictType,
    save_dir: str | os.PathLike[str],
    sharding_strategy: Any = None,
    checkpointing_pg_metadata: Ranks = (None, 0, True),
    log: bool = False,
    optimizer: Any = None,
    scheduler: Any = None,
    extra_exports: Mapping[str, Any] | None = None,
) -> None:
    """Writes model, optimizer, scheduler and ``extra_exports`` into a folder. All ranks call it."""
    _check_type(state_dict_type)
    group, coordinator, saves = checkpointing_pg_metadata
    content: dict[str, Any] = {}
    with FullyShardedDataParallel.state_dict_type(model, state_dict_type):
        content[EXPORT_KEY_MODEL] = model.state_dict()
        if optimizer is not None:
            content[EXPORT_KEY_OPTIMIZER] = FullyShardedDataParallel.optim_state_dict(
                model, optimizer
            )
    if scheduler is not None:
        content[EXPORT_KEY_SCHEDULER] = scheduler.state_dict()
    if extra_exports:
        content[EXPORT_KEY_IDENTITY] = dict(extra_exports)
    if saves:
        save(content, checkpoint_id=save_dir, process_group=group, coordinator_rank=coordinator)
    if log:
        get_logger().info("saved the checkpoint %s", save_dir)


def load_model_checkpoint(
    model: nn.Module,
    state_dict_type: StateDictType,
    checkpoint_dir: str | os.PathLike[str],
    sharding_strategy: Any = None,
    checkpointing_pg_metadata: Ranks = (None, 0, True),
    log: bool = False,
    optimizer: Any = None,
    scheduler: Any = None,
    extra_imports: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Reads such a folder into model, optimizer and scheduler. All ranks call it. Returns them by
    ``EXPORT_KEY_MODEL`` and so on, and the values of ``extra_imports``' keys by
    ``EXPORT_KEY_IDENTITY``."""
    _check_type(state_dict_type)
    group, coordinator, _ = checkpointing_pg_metadata
    options = ShardedOptimStateDictConfig(offload_to_cpu=True)
    with FullyShardedDataParallel.state_dict_type(
        model, state_dict_type, optim_state_dict_config=options
    ):
        content: dict[str, Any] = {EXPORT_KEY_MODEL: model.state_dict()}
        if scheduler is not None:
            content[EXPORT_KEY_SCHEDULER] = scheduler.state_dict()
        if extra_imports:
            content[EXPORT_KEY_IDENTITY] = dict(extra_imports)
        load(
            content,
            checkpoint_id=checkpoint_dir,
            process_group=group,
            coordinator_rank=coordinator,
        )
        model.load_state_dict(content[EXPORT_KEY_MODEL])
        if optimizer is not None:
            _load_optimizer(model, optimizer, content[EXPORT_KEY_MODEL], checkpoint_dir, group)
    if scheduler is not None:
        scheduler.load_state_dict(content[EXPORT_KEY_SCHEDULER])
    if log:
        get_logger().info("loaded the checkpoint %s", checkpoint_dir)
    return {
        EXPORT_KEY_MODEL: model,
        EXPORT_KEY_OPTIMIZER: optimizer,
        EXPORT_KEY_SCHEDULER: scheduler,
        EXPORT_KEY_IDENTITY: content.get(EXPORT_KEY_IDENTITY, {}),
    }


def _load_optimizer(
    model: nn.Module,
    optimizer: Any,
    model_state: Mapping[str, Any],
    folder: str | os.PathLike[str],
    group: dist.ProcessGroup | None,
) -> None:
    reader = DistributedFileSystemReader(folder)
    loaded = load_sharded_optimizer_state_dict(
        model_state, EXPORT_KEY_OPTIMIZER, reader, process_group=group
    )
    optimizer.load_state_dict(
        FullyShardedDataParallel.optim_state_dict_to_load(
            model=model, optim=optimizer, optim_state_dict=loaded[EXPORT_KEY_OPTIMIZER]
        )
    )


def _check_type(state_dict_type: StateDictType) -> None:
    if state_dict_type != StateDictType.SHARDED_STATE_DICT:
        raise NotImplementedError(
            f"torch.sagemaker.distributed.fsdp.checkpoint with {state_dict_type} is not there; "
            "expected StateDictType.SHARDED_STATE_DICT"
        )
