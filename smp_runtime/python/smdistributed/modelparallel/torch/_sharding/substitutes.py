# SPDX-License-Identifier: Apache-2.0
"""Other tensors in the place of a module's parameters while its state dict is made or loaded.

State dicts are the modules' own: hooks rename entries, split them or change their type. So they run
on whole values, whatever a rank holds of these, or on shapes where only these are asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn


@contextlib.contextmanager
def substituted(
    root: nn.Module, by: Mapping[nn.Parameter, nn.Parameter]
) -> Iterator[list[tuple[nn.Module, str, nn.Parameter]]]:
    """The modules below ``root`` have the values of ``by`` in the place of its keys inside, where
    this gives: module, name and key of each.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with substituted(layer, shapes_only([layer.weight])):
    ...     layer.state_dict()["weight"].is_meta
    True
    """
    places = [
        (module, name, parameter)
        for module in root.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter in by
    ]
    for module, name, parameter in places:
        module._parameters[name] = by[parameter]
    try:
        yield places
    finally:
        for module, name, parameter in places:
            module._parameters[name] = parameter


def shapes_only(parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, nn.Parameter]:
    """Parameters of the same shapes and types that have no values."""
    return {
        p: _parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p) for p in parameters
    }


def with_values(values: Mapping[nn.Parameter, torch.Tensor]) -> dict[nn.Parameter, nn.Parameter]:
    """Parameters of the same types that have ``values``."""
    return {p: _parameter(value.to(p.dtype), p) for p, value in values.items()}


def load_beside(
    root: nn.Module, entries: Mapping[str, Any]
) -> tuple[Any, dict[nn.Parameter, torch.Tensor]]:
    """``root.load_state_dict(entries, strict=False)``, which takes buffers into the module and the
    values of parameters beside it.

    Returns what torch returns, and the values that entries had for parameters.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _, values = load_beside(layer, {"weight": torch.ones(1, 2)})
    >>> values[layer.weight].tolist(), bool((layer.weight == 1).all())
    ([[1.0, 1.0]], False)
    """
    # Without memory until something is written: modules take tensors over as they are, but for
    # those that copy by themselves.
    empty = {p: _parameter(torch.empty(p.shape, dtype=p.dtype), p) for p in root.parameters()}
    buffers = [(m, name, b) for m in root.modules() for name, b in m._buffers.items()]
    values: dict[nn.Parameter, torch.Tensor] = {}
    with substituted(root, empty) as places:
        result = root.load_state_dict(entries, strict=False, assign=True)
        for module, name, parameter in places:
            now = module._parameters[name]
            if now is not None and (now is not empty[parameter] or now._version > 0):
                values[parameter] = now.detach()
    with torch.no_grad():
        for module, name, buffer in buffers:
            loaded = module._buffers.get(name)
            if buffer is not None and loaded is not None and loaded is not buffer:
                module._buffers[name] = buffer.copy_(loaded)
    return result, values


def _parameter(value: torch.Tensor, like: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=like.requires_grad)
