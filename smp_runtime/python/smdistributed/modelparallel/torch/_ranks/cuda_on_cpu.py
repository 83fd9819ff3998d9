# SPDX-License-Identifier: Apache-2.0
"""SMP_CPU=1: a script that names CUDA devices runs on a machine without a GPU, for debugging.

Where torch has no CUDA device, requests for one are answered with the CPU: ``torch.device("cuda")``
can still be made, and what is moved or made there stays here. Nothing else differs:
``torch.cuda.is_available()`` goes on saying False.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _device as device_contexts

from smdistributed.modelparallel.torch._ranks import log

#: Functions of torch that make tensors, with ``device`` among their arguments.
_FACTORIES = (
    "arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty", "empty_like",
    "empty_permuted", "empty_strided", "eye", "full", "full_like", "hamming_window", "hann_window",
    "kaiser_window", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "randperm", "scalar_tensor",
    "sparse_coo_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_DEVICE_ARGUMENTS = ("device", "map_location")
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
    # Functions that `with torch.device(...)` acts on: it knows them by what they are now.
    device_contexts._device_constructors()
    device_contexts.DeviceContext.__init__ = _on_cpu(device_contexts.DeviceContext.__init__)  # type: ignore[method-assign]
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, _on_cpu(getattr(torch.Tensor, name)))
    for kind in (torch.Tensor, nn.Module):
        kind.to = _to_cpu(kind.to)  # type: ignore[method-assign]
        kind.cuda = _itself  # type: ignore[method-assign]
    torch.Tensor.type = _on_cpu(torch.Tensor.type)  # type: ignore[method-assign]
    nn.Module.to_empty = _on_cpu(nn.Module.to_empty)  # type: ignore[method-assign]
    torch.Tensor.pin_memory = _itself  # type: ignore[method-assign]
    torch.load = _on_cpu(torch.load)
    for name in ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, _nothing(getattr(torch.cuda, name)))
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = _AnyDevice  # type: ignore[assignment, misc]
    torch.cuda._lazy_init = _needs_a_gpu
    for name in ("get_rng_state", "set_rng_state"):
        setattr(torch.cuda, name, functools.partial(_needs_a_gpu))
    for made in (torch.cuda.Stream, torch.cuda.CUDAGraph):
        made.__new__ = _needs_a_gpu  # type: ignore[method-assign]


def _on_cpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``plain``, with the CPU in place of each CUDA device among its arguments; a number is one
    where it is given by name."""

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*map(_place, args), **_named(kwargs))

    return call


def _to_cpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The method ``to``, of which the first argument may be the number of a device, too."""

    @functools.wraps(plain)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = [_device(one) for one in args[:1]]
        return plain(self, *first, *map(_place, args[1:]), **_named(kwargs))

    return call


def _named(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _device(value) if name in _DEVICE_ARGUMENTS else _pinned(name, value)
        for name, value in kwargs.items()
    }


def _pinned(name: str, value: Any) -> Any:
    """Memory of the host is only pinned for a GPU."""
    return False if name == "pin_memory" else _place(value)


def _device(value: Any) -> Any:
    """The same where a number can only be that of a CUDA device."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return "cpu" if is_number else _place(value)


def _place(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    if isinstance(value, str) and value.startswith("torch.cuda."):  # the name of a type
        return f"torch.{value.removeprefix('torch.cuda.')}"
    if isinstance(value, dict):  # map_location
        return {key: _place(one) for key, one in value.items()}
    return value


def _itself(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self


def _nothing(plain: Callable[..., Any]) -> Callable[..., None]:
    """In place of what only a GPU needs. A function for each name: torch.compile asks for that."""

    @functools.wraps(plain)
    def call(*_args: Any, **_kwargs: Any) -> None:
        pass

    return call


class _AnyDevice(contextlib.nullcontext[None]):
    """``torch.cuda.device``: inside, what is made on the current device is on the CPU as ever."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.idx = device


def _needs_a_gpu(*_args: Any, **_kwargs: Any) -> None:
    """Comes before anything that asks the driver."""
    raise RuntimeError(
        "this needs a GPU itself, such as its properties, streams, events and generators, which "
        "SMP_CPU=1 has no substitute for: do it only where torch.cuda.is_available()"
    )
