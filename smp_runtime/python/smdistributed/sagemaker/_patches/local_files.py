# SPDX-License-Identifier: Apache-2.0
"""Local checkpoints, one file of ``torch.save`` a rank: sharded tensors of hybrid shards, and what
``torch.load`` is to make of the files though it loads weights only."""

from __future__ import annotations

import pickle
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.metadata import (
    MEM_FORMAT_ENCODING,
    ShardedTensorMetadata,
    TensorProperties,
)
from torch.distributed._shard.sharded_tensor.shard import Shard
from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec
from torch.distributed._shard.sharding_spec.chunk_sharding_spec import ChunkShardingSpec
from torch.distributed.fsdp import _state_dict_utils
from torch.distributed.fsdp._common_utils import FSDP_PREFIX
from torch.distributed.fsdp._unshard_param_utils import FLAT_PARAM
from torch.distributed.remote_device import _remote_device

_before_local_load = _state_dict_utils._local_pre_load_state_dict_hook
_init_from_local_shards = _state_dict_utils.init_from_local_shards  # type: ignore[attr-defined]


def install() -> None:
    """Sharded tensors as FSDP1 makes them; making one of a file runs no code of the file."""
    torch.serialization.add_safe_globals(
        [
            ChunkShardingSpec,
            EnumerableShardingSpec,
            MEM_FORMAT_ENCODING,
            Shard,
            ShardMetadata,
            ShardedTensor,
            ShardedTensorMetadata,
            TensorProperties,
            ShardedTensor.ProcessGroupState,
            _remote_device,
            (_member, "builtins.getattr"),
            # Numbers of NumPy, such as counts of parameters, which scripts put beside the values.
            numpy.dtype,
            *{type(numpy.dtype(kind)) for kind in numpy.typecodes["AllInteger"] + "efd?"},
            *((_scalar, f"numpy.{core}.multiarray.scalar") for core in ("_core", "core")),
        ]
    )

    _state_dict_utils.init_from_local_shards = _init_by_own_rank  # type: ignore[attr-defined]
    _state_dict_utils._local_pre_load_state_dict_hook = _without_flat_parameter


def _init_by_own_rank(local_shards: list[Shard], *args: Any, **kwargs: Any) -> ShardedTensor:
    """FSDP1 writes its rank in the group where a rank of the job is meant, and finds that no such
    rank is in a group of hybrid shards. Local shards are this rank's."""
    for shard in local_shards:
        shard.metadata.placement = _remote_device(f"rank:{dist.get_rank()}/{shard.tensor.device}")
    return _init_from_local_shards(local_shards, *args, **kwargs)


def _without_flat_parameter(
    module: nn.Module, fsdp_state: Any, state_dict: dict[str, Any], prefix: str
) -> None:
    """With ``use_orig_params`` values come by the names of parameters, and once more as the flat
    one, which no module has."""
    _before_local_load(module, fsdp_state, state_dict, prefix)
    if fsdp_state._use_orig_params:
        state_dict.pop(f"{prefix}{FSDP_PREFIX}{FLAT_PARAM}", None)


def _scalar(kind: numpy.dtype[Any], content: bytes) -> Any:
    """The number that NumPy has pickled."""
    if kind.hasobject:
        raise pickle.UnpicklingError("it holds an object of NumPy, which could run code")
    return numpy.frombuffer(content, kind)[0]


def _member(owner: Any, name: str) -> Any:
    """What files ask ``getattr`` for: a class inside another, and members of an enumeration."""
    if (owner, name) == (ShardedTensor, "ProcessGroupState"):
        return ShardedTensor.ProcessGroupState
    if owner is MEM_FORMAT_ENCODING:
        return MEM_FORMAT_ENCODING[name]
    raise pickle.UnpicklingError(f"it asks for {name} of {owner!r}, which could run code")


def allow_config_of(module: nn.Module) -> None:
    """The class of a Hugging Face model's configuration, which scripts put beside its values."""
    config = getattr(module, "config", None)
    if type(config).__module__.startswith("transformers."):
        torch.serialization.add_safe_globals([type(config)])
