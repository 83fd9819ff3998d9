# SPDX-License-Identifier: Apache-2.0
"""``load_sharded_optimizer_state_dict(..., process_group=)``: state that is sharded over the group
that shards the model. PyTorch's own shards it over all ranks, whatever the model's group; with
replicas the values that come back are others then, and nothing says so."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint import optimizer as optimizer_module
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.distributed.fsdp._shard_utils import _create_chunk_sharded_tensor
from torch.distributed.tensor import DTensor

from smdistributed.sagemaker._patches.coordinators import plain_load
from smdistributed.sagemaker._patches.empty_shards import device_of

plain_load_optimizer = optimizer_module.load_sharded_optimizer_state_dict


def install() -> None:
    optimizer_module.load_sharded_optimizer_state_dict = load_sharded_optimizer_state_dict
    dcp.load_sharded_optimizer_state_dict = load_sharded_optimizer_state_dict  # type: ignore[attr-defined]


def load_sharded_optimizer_state_dict(
    model_state_dict: Mapping[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
) -> dict[str, Any]:
    """Reads the state of an optimizer from a sharded checkpoint of DCP.

    Args:
        model_state_dict: of the model, with ``SHARDED_STATE_DICT``.
        optimizer_key: where the checkpoint has the optimizer.
        process_group: the ranks over which the model is sharded; by default those of the values of
            ``model_state_dict``.
    """
    group = process_group or _group_of(model_state_dict)
    if group is None or _is_split(model_state_dict):
        return plain_load_optimizer(dict(model_state_dict), optimizer_key, storage_reader, planner)
    metadata = storage_reader.read_metadata()
    places = metadata.planner_data or {}
    state: dict[str, Any] = {}
    for name, stored in metadata.state_dict_metadata.items():
        if places[name][0] != optimizer_key:
            continue
        if isinstance(stored, BytesStorageMetadata):
            state[name] = None
            continue
        whole = torch.empty(stored.size, dtype=stored.properties.dtype, device=device_of(group))
        state[name] = whole if stored.size.numel() == 1 else _sharded(whole, group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch prefers dcp.load
        plain_load(state, storage_reader, group, 0, False, planner)
    return unflatten_state_dict(state, places)


def _sharded(whole: torch.Tensor, group: dist.ProcessGroup) -> ShardedTensor:
    gpus = max(1, torch.cuda.device_count())
    return _create_chunk_sharded_tensor(whole, group.rank(), group.size(), gpus, group)


def _group_of(values: Mapping[str, Any]) -> dist.ProcessGroup | None:
    groups = (one._process_group for one in values.values() if isinstance(one, ShardedTensor))
    return next(groups, None)


def _is_split(values: Mapping[str, Any]) -> bool:
    """True for state of a mesh, and of shards that are sharded again, which PyTorch places."""
    return any(
        isinstance(one, DTensor)
        or (
            isinstance(one, ShardedTensor)
            and any(isinstance(shard.tensor, ShardedTensor) for shard in one.local_shards())
        )
        for one in values.values()
    )
