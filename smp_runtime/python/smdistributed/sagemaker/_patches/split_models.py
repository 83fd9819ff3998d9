# SPDX-License-Identifier: Apache-2.0
"""FSDP around a split model: full state dicts of whole values under Transformers' names, the norm
of gradients over the tensor-parallel group, and what would be wrong without a word."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPUnsupportedError
from smdistributed.sagemaker.state_handler import state
from smdistributed.sagemaker.tensor_parallel import split_norms

_clip = FullyShardedDataParallel.clip_grad_norm_
_optim_state = FullyShardedDataParallel._optim_state_dict_impl
_OPTIM_ARGUMENTS = inspect.signature(_optim_state)


def install() -> None:
    FullyShardedDataParallel.clip_grad_norm_ = _clip_here  # type: ignore[method-assign]
    FullyShardedDataParallel._optim_state_dict_impl = staticmethod(_optim_state_here)  # type: ignore[method-assign]


def check(module: nn.Module, syncs: bool) -> None:
    """Raises SMPConfigError for a model that FSDP would train as another one."""
    if state.tp_size == 1:
        return
    parts = split_norms.split_parts(module)
    if not parts:
        raise SMPConfigError(
            f"tensor_parallel_degree is {state.tp_size}, and FullyShardedDataParallel got a model "
            "that torch.sagemaker.transform has not split: call that first, or set the degree to 1"
        )
    if any(part.waits_for_rank0 for _, part in parts) and not syncs:
        raise SMPConfigError(
            "only rank 0 has the values of the model, by load_state_dict_from_rank0=True: give "
            "FullyShardedDataParallel sync_module_states=True"
        )


def translate_states(root: FullyShardedDataParallel) -> None:
    """Has full state dicts of ``root`` translated, both ways."""
    if not split_norms.has_slices(root):
        return
    root._register_state_dict_hook(_whole)
    before = root._register_load_state_dict_pre_hook(_slices, with_module=True)
    # FSDP's own, which puts a prefix before names, comes after it.
    root._load_state_dict_pre_hooks.move_to_end(before.id, last=False)  # type: ignore[attr-defined]


def _whole(
    root: FullyShardedDataParallel, entries: dict[str, Any], prefix: str, _metadata: Any
) -> None:
    config = root._state_dict_config
    if not _is_full(root) or not getattr(config, "translate_on_save", True):
        return
    only_rank0 = bool(config.rank0_only)  # type: ignore[attr-defined]
    if only_rank0 and root.rank != 0:
        return
    for path, part in split_norms.split_parts(root):
        own = _taken(entries, prefix + path)
        keep = not only_rank0 or state.tp_rank == 0
        whole = part.whole_states.gathered(own, keep)
        entries.update({f"{prefix}{path}{name}": value for name, value in whole.items()})


def _slices(
    root: FullyShardedDataParallel, entries: dict[str, Any], prefix: str, *_further: Any
) -> None:
    if not _is_full(root):
        return
    for path, part in split_norms.split_parts(root):
        own = part.whole_states.sliced(_taken(entries, prefix + path))
        entries.update({f"{prefix}{path}{name}": value for name, value in own.items()})


def _is_full(root: FullyShardedDataParallel) -> bool:
    return root._state_dict_type == StateDictType.FULL_STATE_DICT


def _taken(entries: dict[str, Any], start: str) -> dict[str, Any]:
    names = [name for name in entries if name.startswith(start)]
    return {name.removeprefix(start): entries.pop(name) for name in names}


@functools.wraps(_clip)
def _clip_here(
    self: FullyShardedDataParallel, max_norm: float | int, norm_type: float | int = 2.0
) -> torch.Tensor:
    if split_norms.has_slices(self):
        return split_norms.clip(self, max_norm, norm_type)
    return _clip(self, max_norm, norm_type)


@functools.wraps(_optim_state)
def _optim_state_here(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Any]:
    given = _OPTIM_ARGUMENTS.bind(model, *args, **kwargs).arguments
    if given.get("full_state_dict", True) and split_norms.has_slices(model):
        raise SMPUnsupportedError(
            "a full state dict of the optimizer of a split model is not offered: save it with "
            "SHARDED_STATE_DICT, in a folder for each tensor rank"
        )
    return _optim_state(model, *args, **kwargs)
