# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers of modules that are created without storage."""

from __future__ import annotations

import torch
from torch import nn

Device = torch.device | str | int


def empty_module_params(module: nn.Module, device: Device, recurse: bool = False) -> None:
    """Replaces parameters by ones with storage on ``device``, whose values are not set. Buffers
    stay as they are.

    >>> layer = nn.Linear(2, 3, device="meta")
    >>> empty_module_params(layer, "cpu")
    >>> layer.weight.shape, layer.weight.device.type
    (torch.Size([3, 2]), 'cpu')
    """
    for owner in module.modules() if recurse else [module]:
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                owner._parameters[name] = empty_parameter(parameter, device)


def empty_parameter(parameter: nn.Parameter, device: Device) -> nn.Parameter:
    """One like it on ``device``, whose values are not set."""
    empty = torch.empty_like(parameter, device=device)
    return nn.Parameter(empty, requires_grad=parameter.requires_grad)


def move_buffers_to_device(module: nn.Module, device: Device, recurse: bool = False) -> None:
    """Moves buffers that have storage to ``device``.

    >>> norm = nn.BatchNorm1d(2)
    >>> move_buffers_to_device(norm, "cpu")
    """
    for owner in module.modules() if recurse else [module]:
        for name, buffer in owner._buffers.items():
            if buffer is not None and not buffer.is_meta:
                owner._buffers[name] = buffer.to(device)
