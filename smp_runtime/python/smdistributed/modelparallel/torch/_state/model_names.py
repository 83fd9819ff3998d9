# SPDX-License-Identifier: Apache-2.0
"""Names of a model's parameters and buffers, and shapes by name."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import nn


def first_names(module: nn.Module) -> dict[str, str]:
    """Each name of a parameter, with the one under which ``named_parameters()`` has it. A tied
    parameter has several.

    >>> pair = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    >>> pair["b"].weight = pair["a"].weight
    >>> first_names(pair)
    {'a.weight': 'a.weight', 'b.weight': 'a.weight'}
    """
    first: dict[nn.Parameter, str] = {}
    parameters = module.named_parameters(remove_duplicate=False)
    return {name: first.setdefault(parameter, name) for name, parameter in parameters}


def tied_names(module: nn.Module) -> dict[str, str]:
    """The other names of tied parameters, each with the first one.

    >>> pair = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    >>> pair["b"].weight = pair["a"].weight
    >>> tied_names(pair)
    {'b.weight': 'a.weight'}
    """
    return {name: first for name, first in first_names(module).items() if name != first}


@overload
def get_param_shapes(model: nn.Module) -> dict[str, torch.Size]: ...


@overload
def get_param_shapes(model: nn.Module, optimizer: Any) -> list[dict[str, torch.Size]]: ...


def get_param_shapes(
    model: nn.Module, optimizer: Any = None
) -> dict[str, torch.Size] | list[dict[str, torch.Size]]:
    """Shapes by name, for ``user_content`` of a checkpoint: of all parameters or, with an
    optimizer, of those of each of its groups, in the order in which their masters are saved.

    >>> model = nn.Linear(2, 1)
    >>> get_param_shapes(model)
    {'weight': torch.Size([1, 2]), 'bias': torch.Size([1])}
    >>> groups = [{"params": [model.bias]}, {"params": [model.weight]}]
    >>> get_param_shapes(model, torch.optim.SGD(groups, lr=1.0))
    [{'bias': torch.Size([1])}, {'weight': torch.Size([1, 2])}]
    """
    if optimizer is None:
        return {name: _shape(parameter) for name, parameter in model.named_parameters()}
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups: Any = getattr(optimizer, "fp16_groups", None)  # those that masters stand for
    if groups is None:
        groups = [group["params"] for group in optimizer.param_groups]
    return [{names[p]: _shape(p) for p in group if p in names} for group in groups]


def _shape(parameter: Any) -> torch.Size:
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def get_buffer_names(model: nn.Module) -> list[str]:
    """Names of buffers, for ``user_content`` of a checkpoint.

    >>> get_buffer_names(nn.BatchNorm1d(2))
    ['running_mean', 'running_var', 'num_batches_tracked']
    """
    return [name for name, _ in model.named_buffers()]
