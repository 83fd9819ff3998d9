# SPDX-License-Identifier: Apache-2.0
"""``offload_wrapper`` with ``sm_activation_offloading``: the inputs of checkpointed layers, which
are what such layers keep, wait on the host, and come back ahead of their backwards. PyTorch's own
loads each when it is used."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    OffloadWrapper,
)

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPUnsupportedError
from smdistributed.sagemaker.state_handler import state

_offload: Any = OffloadWrapper.forward
_checkpoint: Any = CheckpointWrapper.forward
_checked: weakref.WeakSet[OffloadWrapper] = weakref.WeakSet()
_stores: dict[int, _runtime.ActivationStore] = {}  # by horizon
_pass: ContextVar[_Pass | None] = ContextVar("forward of an offload_wrapper", default=None)


def install() -> None:
    OffloadWrapper.forward = _forward_and_offload  # type: ignore[method-assign]
    CheckpointWrapper.forward = _forward_of_layer  # type: ignore[method-assign]


def store() -> _runtime.ActivationStore:
    """Where inputs wait, of all models of this process: at most ``activation_loading_horizon`` of
    them are on the device at once, the one in use among them."""
    horizon: int = state.activation_loading_horizon
    if horizon not in _stores:
        _stores[horizon] = _runtime.ActivationStore(horizon=horizon - 1, most_fast=horizon)
    return _stores[horizon]


class _Pass:
    """One forward of a model, with gradients."""

    _count = 0

    def __init__(self) -> None:
        self._store = store()
        _Pass._count += 1
        self._number = _Pass._count
        self._shared: list[weakref.ref[torch.Tensor]] = []

    @contextmanager
    def offloading(self, inputs: list[torch.Tensor]) -> Iterator[None]:
        """Inside, a checkpointed layer runs, and keeps its inputs in the store. What several layers
        get, such as a mask, stays where it is."""
        stored = {}
        for one in inputs:
            if _key(one) in stored or (not one.requires_grad and self._is_shared(one)):
                continue
            found = self._store.put(one, self._number)
            if found is not None:
                stored[_key(one)] = _Offloaded(found)

        # Hooks of the layer itself, which take the rest of what it saves, lie inside these.
        with saved_tensors_hooks(lambda tensor: stored.pop(_key(tensor), tensor), _unpack):
            yield
        stored.clear()  # of what it has not saved

    def _is_shared(self, tensor: torch.Tensor) -> bool:
        """True for a tensor that another layer of this pass has been given."""
        if any(tensor is seen() for seen in self._shared):
            return True
        self._shared.append(weakref.ref(tensor))
        return False


class _Offloaded:
    """An input that waits in the store."""

    def __init__(self, stored: _runtime.StoredActivation) -> None:
        self._stored: _runtime.StoredActivation | None = stored

    def take(self) -> torch.Tensor:
        if self._stored is None:
            raise SMPUnsupportedError(
                "a layer's input that offload_wrapper has moved to the host is asked for a second "
                "time, as by a second backward through the same graph; leave offload_wrapper out, "
                "or set sm_activation_offloading to false"
            )
        stored, self._stored = self._stored, None
        return stored.take()


def _is_input(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The same for a tensor and for what autograd makes of it before it saves it."""
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _unpack(packed: Any) -> torch.Tensor:
    tensor: torch.Tensor = packed.take() if isinstance(packed, _Offloaded) else packed
    return tensor


@functools.wraps(_offload)
def _forward_and_offload(self: OffloadWrapper, *args: Any, **kwargs: Any) -> Any:
    if not state.is_initialized or not state.sm_activation_offloading:
        return _offload(self, *args, **kwargs)
    if not torch.is_grad_enabled() or _pass.get() is not None:
        return self._checkpoint_wrapped_module(*args, **kwargs)
    if self not in _checked:
        _check_checkpointing(self)
        _checked.add(self)
    token = _pass.set(_Pass())
    try:
        return self._checkpoint_wrapped_module(*args, **kwargs)
    finally:
        _pass.reset(token)


@functools.wraps(_checkpoint)
def _forward_of_layer(self: CheckpointWrapper, *args: Any, **kwargs: Any) -> Any:
    current = _pass.get()
    if current is None:
        return _checkpoint(self, *args, **kwargs)

    count, names = len(args), tuple(kwargs)

    def by_place(*values: Any) -> Any:
        named = dict(zip(names, values[count:], strict=True))
        return self._checkpoint_wrapped_module(*values[:count], **named)

    values = (*args, *kwargs.values())
    token = _pass.set(None)  # a layer inside a layer is recomputed with it
    try:
        with current.offloading([one for one in values if _is_input(one)]):
            if self.checkpoint_impl == CheckpointImpl.REENTRANT:  # it does the same by itself
                return _checkpoint(self, *args, **kwargs)
            return self.checkpoint_fn(by_place, *values)  # named ones would stay where they are
    finally:
        _pass.reset(token)


def _check_checkpointing(model: nn.Module) -> None:
    if not any(isinstance(one, CheckpointWrapper) for one in model.modules()):
        raise SMPConfigError(
            "offload_wrapper has a model without activation checkpointing; with "
            "sm_activation_offloading it moves inputs of checkpointed layers: call "
            f"apply_activation_checkpointing(...) of {checkpoint_wrapper.__name__} before it, or "
            "set sm_activation_offloading to false"
        )
