# SPDX-License-Identifier: Apache-2.0
"""Comparison of the replicas of a model: FSDP averages gradients over them, and never values."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker._patches.sharding import HYBRID


def check_replicas(model: FullyShardedDataParallel) -> None:
    """Raises SMPValidationError on all ranks, where ranks that hold the same shard do not have the
    same values, bit by bit. All ranks call it."""
    group = _replicas(model)
    if group is None or group.size() == 1:
        return
    sums = _sums(model)
    extremes = torch.cat([sums, -sums])
    dist.all_reduce(extremes, dist.ReduceOp.MAX, group=group)
    highest, lowest = extremes.chunk(2)
    differs = (highest != -lowest).any().to(torch.int64)
    dist.all_reduce(differs, dist.ReduceOp.MAX)
    if differs.item():
        raise SMPValidationError(
            "replicas of the model begin with different values, and would stay different: create "
            "it with the same seed on all ranks, or give FullyShardedDataParallel "
            "sync_module_states=True"
        )


def _replicas(model: FullyShardedDataParallel) -> dist.ProcessGroup | None:
    if model.sharding_strategy in HYBRID:
        replicas: dist.ProcessGroup = model._inter_node_pg
        return replicas
    if model.sharding_strategy == ShardingStrategy.NO_SHARD:
        return model.process_group
    return None


def _sums(model: FullyShardedDataParallel) -> torch.Tensor:
    """Sums of the bits of each unit, which no order of adding changes."""
    sums = []
    for unit in FullyShardedDataParallel.fsdp_modules(model):
        if unit._handle is not None:
            bits = unit._handle.flat_param.detach().view(torch.uint8)
            sums += [bits.sum(dtype=torch.int64), bits[::3].sum(dtype=torch.int64)]
    return torch.stack(sums).to(model.compute_device)  # which the group has a backend for
