# SPDX-License-Identifier: Apache-2.0
"""Sharded tensors with fewer rows than ranks, of which some ranks have no piece. DCP's planner of
loads leaves them out there, takes the checkpoint for one of PyTorch 2.3 because it has names that
were not asked for, and then asks for names that it does not have. Their device is a GPU to PyTorch
where the group is not of gloo, also with ``smddp`` on the CPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import _sharded_op_impl
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

_set_up = DefaultLoadPlanner.set_up_planner


def install() -> None:
    DefaultLoadPlanner.set_up_planner = _with_empty_shards  # type: ignore[method-assign]
    _sharded_op_impl(torch.Tensor.device.__get__)(_device)


def device_of(group: dist.ProcessGroup) -> torch.device:
    """Where this rank has tensors of the group."""
    kind = dist.distributed_c10d._get_pg_default_device(group)
    return torch.device("cuda", torch.cuda.current_device()) if kind.type == "cuda" else kind


def _device(_types: Any, args: Any = (), _kwargs: Any = None, group: Any = None) -> torch.device:
    shards = args[0].local_shards()
    return shards[0].tensor.device if shards else device_of(group)


@functools.wraps(_set_up)
def _with_empty_shards(
    self: DefaultLoadPlanner, state_dict: Any, *args: Any, **kwargs: Any
) -> None:
    _set_up(self, state_dict, *args, **kwargs)
    if not self.flatten_state_dict:
        return
    values, places = flatten_state_dict(state_dict)
    for name, value in values.items():
        if isinstance(value, ShardedTensor) and not value.local_shards():
            self.state_dict.setdefault(name, value)
            self.mappings.setdefault(name, places[name])
