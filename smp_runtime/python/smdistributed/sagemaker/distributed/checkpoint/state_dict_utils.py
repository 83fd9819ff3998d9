# SPDX-License-Identifier: Apache-2.0
"""State dicts of the pieces that a rank has, without FSDP's gathering and wrapping."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

from smdistributed.modelparallel.torch.exceptions import SMPValidationError

#: Attributes of modules by which FSDP and activation wrappers change their state dicts.
_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class SMStateDictType(Enum):
    """Forms of state dicts besides those of FSDP."""

    SM_LOCAL_STATE_DICT = auto()


@contextmanager
def sm_state_dict_type(
    model: nn.Module,
    state_dict_type: SMStateDictType | StateDictType,
    state_dict_config: Any = None,
    optim_state_dict_config: Any = None,
) -> Iterator[None]:
    """Inside, ``model.state_dict()`` is of that form.

    ``SM_LOCAL_STATE_DICT`` is this rank's pieces, the very tensors that are trained: what is loaded
    into them is in the model. They fit a job with the same ``hybrid_shard_degree``; the number of
    replicas may be another. Forms of FSDP are as in ``FSDP.state_dict_type``.

    >>> model = nn.Linear(1, 1)
    >>> with sm_state_dict_type(model, SMStateDictType.SM_LOCAL_STATE_DICT):
    ...     model.state_dict()["weight"].data_ptr() == model.weight.data_ptr()
    True
    """
    if state_dict_type is not SMStateDictType.SM_LOCAL_STATE_DICT:
        with FullyShardedDataParallel.state_dict_type(
            model, state_dict_type, state_dict_config, optim_state_dict_config
        ):
            yield
        return
    units = FullyShardedDataParallel.fsdp_modules(model)
    for unit in units:
        _check_sharded(unit)
    kept = [(unit, name, unit.__dict__[name]) for unit in units for name in _HOOKS]
    try:
        for unit, name, _ in kept:
            unit.__dict__[name] = OrderedDict()
        yield
    finally:
        for unit, name, hooks in kept:
            unit.__dict__[name] = hooks


def _check_sharded(unit: FullyShardedDataParallel) -> None:
    handle = unit._handle
    if handle and handle.uses_sharded_strategy and not handle.is_sharded(handle.flat_param):
        raise SMPValidationError(
            "SM_LOCAL_STATE_DICT is asked for where FSDP has gathered parameters, as after a "
            "forward without a backward; save after a training step"
        )


def init_optim_state(optimizer: torch.optim.Optimizer, skip_empty_param: bool = False) -> None:
    """Makes the state that the optimizer would make at its first step, so that a checkpoint can be
    loaded into it. Parameters stay as they are; an optimizer that has state keeps it.

    Args:
        skip_empty_param: leave out parameters of which this rank has no element.

    >>> layer = nn.Linear(2, 2)
    >>> optimizer = torch.optim.AdamW(layer.parameters())
    >>> init_optim_state(optimizer)
    >>> sorted(optimizer.state[layer.weight])
    ['exp_avg', 'exp_avg_sq', 'step']
    """
    if optimizer.state:
        return
    own = [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]
    if any(one.grad is not None for one in own):
        raise SMPValidationError(
            "init_optim_state is called where parameters have gradients; call it before the first "
            "backward, or after zero_grad()"
        )
    rates = [group["lr"] for group in optimizer.param_groups]
    for one in own:
        if one.numel() or not skip_empty_param:
            one.grad = torch.zeros_like(one)
    try:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        for one in own:
            one.grad = None
