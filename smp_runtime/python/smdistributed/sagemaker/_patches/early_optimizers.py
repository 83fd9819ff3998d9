# SPDX-License-Identifier: Apache-2.0
"""Optimizers that were made before FSDP replaced the parameters which they hold: their steps would
change nothing of the model."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdistributed.modelparallel.torch.exceptions import SMPConfigError

_replaced: dict[int, weakref.ref[nn.Parameter]] = {}
_checked: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
_checks: list[Any] = []  # the hook, once a model is wrapped


def note_replaced(before: list[nn.Parameter], model: nn.Module) -> None:
    """``before`` are the parameters that FSDP was given, ``model`` is what it made of them."""
    if not _checks:
        _checks.append(register_optimizer_step_pre_hook(_check))
    kept = {id(one) for one in model.parameters()}
    for one in before:
        if id(one) not in kept:
            _replaced[id(one)] = weakref.ref(one)
    for number in [number for number, one in _replaced.items() if one() is None]:
        del _replaced[number]


def _check(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    if optimizer in _checked:
        return
    for group in optimizer.param_groups:
        for one in group["params"]:
            found = _replaced.get(id(one))
            if found is not None and found() is one:
                raise SMPConfigError(
                    "the optimizer holds parameters that FSDP has replaced: make it after "
                    "FullyShardedDataParallel(...), of the parameters of what that returns"
                )
    _checked.add(optimizer)
