# SPDX-License-Identifier: Apache-2.0
"""``FullStateDictConfig(translate_on_save=...)``, and ``offload_to_cpu`` on the CPU: there FSDP1
frees the storage of what it hands out, so the flag is left out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel
from torch.distributed.fsdp._traversal_utils import _get_fsdp_states

_make_config = FullStateDictConfig.__init__
_set_type = FullyShardedDataParallel.set_state_dict_type
_summon = FullyShardedDataParallel.summon_full_params


def install() -> None:
    FullStateDictConfig.__init__ = _with_translation  # type: ignore[method-assign]
    FullyShardedDataParallel.set_state_dict_type = staticmethod(_set_type_here)  # type: ignore[method-assign]
    FullyShardedDataParallel.summon_full_params = staticmethod(_summon_here)  # type: ignore[method-assign]


@functools.wraps(_make_config)
def _with_translation(
    self: FullStateDictConfig, *args: Any, translate_on_save: bool = True, **kwargs: Any
) -> None:
    """False leaves a split model's full state dict to the names and slices of this rank."""
    _make_config(self, *args, **kwargs)
    self.translate_on_save = translate_on_save  # type: ignore[attr-defined]


@functools.wraps(_set_type)
def _set_type_here(
    module: nn.Module,
    state_dict_type: Any,
    state_dict_config: Any = None,
    optim_state_dict_config: Any = None,
) -> Any:
    if _is_on_cpu(module):
        state_dict_config = _kept_in_place(state_dict_config)
        optim_state_dict_config = _kept_in_place(optim_state_dict_config)
    return _set_type(module, state_dict_type, state_dict_config, optim_state_dict_config)


@contextlib.contextmanager
def _summon_here(module: nn.Module, *args: Any, **kwargs: Any) -> Iterator[None]:
    if kwargs.get("offload_to_cpu") and _is_on_cpu(module):
        kwargs["offload_to_cpu"] = False
    with _summon(module, *args, **kwargs):
        yield


def _is_on_cpu(module: nn.Module) -> bool:
    states = _get_fsdp_states(module)
    return bool(states) and all(
        one.compute_device is not None and one.compute_device.type == "cpu" for one in states
    )


def _kept_in_place(config: Any) -> Any:
    if config is None or not getattr(config, "offload_to_cpu", False):
        return config
    kept = dataclasses.replace(config, offload_to_cpu=False)
    if hasattr(config, "translate_on_save"):
        kept.translate_on_save = config.translate_on_save
    return kept
