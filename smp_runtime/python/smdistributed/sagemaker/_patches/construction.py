# SPDX-License-Identifier: Apache-2.0
"""``FullyShardedDataParallel(...)`` with the groups of ``init`` and ``post_param_init_fn``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, _init_utils

from smdistributed.modelparallel.torch.exceptions import SMPConfigError
from smdistributed.sagemaker import _job
from smdistributed.sagemaker._patches import (
    cache_flushes,
    early_optimizers,
    local_files,
    split_models,
)
from smdistributed.sagemaker._patches.replica_check import check_replicas
from smdistributed.sagemaker._patches.sharding import HYBRID, Sharding, sharding_of
from smdistributed.sagemaker.state_handler import state

_construct = FullyShardedDataParallel.__init__
#: Its arguments after self, module, process_group and sharding_strategy.
_FURTHER = list(inspect.signature(_construct).parameters)[4:]
_plain_check = _init_utils._check_module_states_for_sync_module_states
Prepare = Callable[[nn.Module], None]
_making: list[FullyShardedDataParallel] = []  # a model, and its parts while it wraps them


def install() -> None:
    FullyShardedDataParallel.__init__ = _patched  # type: ignore[method-assign]
    _init_utils._check_module_states_for_sync_module_states = _check_synced


@functools.wraps(_construct)
def _patched(
    self: FullyShardedDataParallel,
    module: nn.Module,
    process_group: Any = None,
    sharding_strategy: ShardingStrategy | None = None,
    *args: Any,
    post_param_init_fn: Prepare | None = None,
    **kwargs: Any,
) -> None:
    kwargs |= zip(_FURTHER, args, strict=False)
    if post_param_init_fn is not None:
        kwargs["param_init_fn"] = _both(kwargs.get("param_init_fn"), post_param_init_fn)
    if state.is_initialized:
        _check_types(module)
        if not _making:
            split_models.check(module, bool(kwargs.get("sync_module_states")))
        local_files.allow_config_of(module)
        kwargs["device_id"] = _existing(kwargs.get("device_id"))
        if kwargs.get("device_mesh") is None:
            sharding = sharding_of(sharding_strategy, state.set_shard_degree, state.world_size)
            process_group = _group(sharding, process_group)
            sharding_strategy = sharding.strategy
        elif state.set_shard_degree is not None:
            raise SMPConfigError(
                "FullyShardedDataParallel got a device_mesh, and hybrid_shard_degree is "
                f"{state.hybrid_shard_degree}: leave the mesh out, or set the key to 0"
            )
    elif not _making:
        state.note_early(self)
    before = list(module.parameters()) if state.is_initialized and not _making else []
    _making.append(self)
    try:
        _construct(self, module, process_group, sharding_strategy, **kwargs)
    finally:
        _making.pop()
    if state.is_initialized and not _making:
        early_optimizers.note_replaced(before, self)
        split_models.translate_states(self)
        check_replicas(self)
        if state.fsdp_cache_flush_warnings:
            cache_flushes.watch(self)


def _check_synced(module_states: list[torch.Tensor]) -> None:
    """``sync_module_states`` without accelerators: values are broadcast on the CPU then."""
    if torch.accelerator.is_available() or not state.is_initialized:
        _plain_check(module_states)


def _both(first: Prepare | None, then: Prepare) -> Prepare:
    """For each module: its parameters are initialised, then what is left to do is done."""

    def prepare(module: nn.Module) -> None:
        if first is not None:
            first(module)
        then(module)

    return prepare


def _group(sharding: Sharding, asked: Any) -> Any:
    """The argument ``process_group`` of FSDP: for hybrid strategies a pair, of the ranks that shard
    a copy and of those that hold the same shard."""
    if asked is not None and asked is not state.world_process_group:
        own = (state.shard_process_group, state.replica_process_group)
        if state.set_shard_degree is not None and asked not in (own, *own):
            raise SMPConfigError(
                "FullyShardedDataParallel got a process_group, and hybrid_shard_degree is "
                f"{state.hybrid_shard_degree}: leave the group out, or set the key to 0"
            )
        return asked
    if state.native_shard_degree is None and state.set_shard_degree is None:
        state.native_shard_degree = sharding.degree
    if sharding.strategy not in HYBRID:
        # Where layers are split, copies are on the ranks that hold the same part of each.
        return state.shard_process_group if state.tp_size > 1 else asked
    if state.set_shard_degree is None and state.native_shard_degree != sharding.degree:
        raise SMPConfigError(
            f"FullyShardedDataParallel shards over {sharding.degree} ranks, and a first model over "
            f"{state.native_shard_degree}; use one sharding_strategy, or set hybrid_shard_degree"
        )
    if state.shard_process_group is None:
        _job.make_shard_groups()
    return (state.shard_process_group, state.replica_process_group)


def _check_types(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        floats = parameter.requires_grad and parameter.dtype.is_floating_point
        if floats and parameter.dtype != torch.float32:
            raise SMPConfigError(
                f"the parameter {name} is of {parameter.dtype}; expected torch.float32: FSDP keeps "
                "masters of 32 bits, and computes in what its mixed_precision says"
            )


def _existing(device: Any) -> Any:
    """The device; on a machine without accelerators the CPU, which FSDP does not take by itself,
    also where a script that is debugged there names a GPU."""
    if torch.accelerator.is_available():
        return device
    is_cpu = device is None or isinstance(device, int) or torch.device(device).type == "cuda"
    return torch.device("cpu") if is_cpu else device
