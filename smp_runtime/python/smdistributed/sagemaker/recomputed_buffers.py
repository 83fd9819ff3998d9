# SPDX-License-Identifier: Apache-2.0
"""Buffers without storage, such as the frequencies of rotary embeddings, computed anew."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn


def recompute_buffers(module: nn.Module, config: Any, device: torch.device) -> list[str]:
    """Gives the buffers that ``module`` has itself storage and values, where they have none.
    Returns the names of those whose values nothing can tell.

    A module like it is created, of the configuration that it or the model has, and its buffers are
    taken; else ``reset_parameters`` or ``reset_running_stats`` sets them.

    >>> norm = nn.BatchNorm1d(2, device="meta")
    >>> recompute_buffers(norm, None, torch.device("cpu")), norm.running_var
    ([], tensor([1., 1.]))
    """
    missing = [name for name, one in module._buffers.items() if one is not None and one.is_meta]
    if not missing:
        return []
    alike = _created_alike(module, config)
    for name in missing:
        value = alike._buffers.get(name) if alike is not None else None
        if value is not None and value.shape == module._buffers[name].shape:  # type: ignore[union-attr]
            module._buffers[name] = value.to(device)
        else:
            module._buffers[name] = _unset(module._buffers[name], device)  # type: ignore[arg-type]
    left = [name for name in missing if alike is None or alike._buffers.get(name) is None]
    reset: Any = getattr(module, "reset_running_stats", None)
    if left and reset is not None:
        reset()
        return []
    return left


def _unset(buffer: torch.Tensor, device: torch.device) -> torch.Tensor:
    empty = torch.empty_like(buffer, device=device)
    return empty.fill_(torch.nan) if empty.is_floating_point() else empty.zero_()


def _created_alike(module: nn.Module, config: Any) -> nn.Module | None:
    """A module of the type, created of a configuration; None where it takes more than that and a
    layer's number. Random numbers that it draws are given back."""
    config = getattr(module, "config", None) or config
    takes = inspect.signature(type(module).__init__).parameters
    known = {"config": config, "layer_idx": getattr(module, "layer_idx", None)}
    needed = {
        name
        for name, one in list(takes.items())[1:]  # without self
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    }
    if config is None or "config" not in takes or not needed <= known.keys():
        return None
    with torch.random.fork_rng(devices=[]):
        return type(module)(**{name: known[name] for name in known.keys() & takes.keys()})
