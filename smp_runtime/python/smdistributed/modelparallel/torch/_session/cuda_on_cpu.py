# SPDX-License-Identifier: Apache-2.0
"""SMP_CPU=1: a script that names CUDA devices runs on a machine without a GPU, for debugging.

Where torch has no CUDA device, requests for one are answered with the CPU: ``torch.device("cuda")``
can still be made, and what is moved or made there stays here. Nothing else differs:
``torch.cuda.is_available()`` goes on saying False.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._session import log

#: Functions of torch that make tensors, with ``device`` among their arguments.
_FACTORIES = (
    "arange", "as_tensor", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones",
    "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "tensor", "zeros", "zeros_like",
)  # fmt: skip
_METHODS = ("to", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
_installed = False


def install() -> None:
    """From now on, for the whole process. Without effect, but for a warning, where a GPU is."""
    global _installed  # noqa: PLW0603 - torch is patched once a process
    if torch.cuda.is_available():
        log.warning("SMP_CPU=1 has no effect: this machine has a GPU")
        return
    log.warning("SMP_CPU=1: what the script does on CUDA devices is done on the CPU")
    if _installed:
        return
    _installed = True
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, _on_cpu(getattr(torch.Tensor, name)))
    nn.Module.to = _on_cpu(nn.Module.to)  # type: ignore[method-assign]
    for kind in (torch.Tensor, nn.Module):
        kind.cuda = _itself  # type: ignore[method-assign]
    torch.load = _on_cpu(torch.load)
    for name in ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, _nothing)
    torch.cuda.current_device = lambda: 0


def _on_cpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``plain``, with the CPU in place of each CUDA device among its arguments."""

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*map(_place, args), **{name: _place(value) for name, value in kwargs.items()})

    return call


def _place(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def _itself(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """In place of what only a GPU needs."""
