# SPDX-License-Identifier: Apache-2.0
"""Runs a region of the model so that its activations are recomputed in backward, not kept.

The recomputing itself is ``torch.utils.checkpoint`` without reentrance: one recompute per region
and backward, random generators and autocast restored. Around it: what the region's forward changes
in buffers is not changed a second time, and with ``offload_activations`` the region's inputs, which
are all it keeps, wait in slow memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from smdistributed import _runtime
from smdistributed.modelparallel.torch._slices.random_streams import Snapshot
from smdistributed.modelparallel.torch.state_mod import state

_inside: ContextVar[bool] = ContextVar("inside a recomputed region", default=False)


def in_region() -> bool:
    """True if what runs now is to be recomputed in backward, or is being recomputed.

    >>> in_region()
    False
    """
    return _inside.get()


def run_region(
    modules: Sequence[nn.Module],
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    preserve_rng_state: bool,
) -> Any:
    """``call(*args, **kwargs)``, which calls ``modules`` only. Without gradients, and in the trace,
    a plain call.

    >>> layer = nn.Linear(2, 2)
    >>> x = torch.ones(1, 2, requires_grad=True)
    >>> out = run_region([layer], layer.forward, (x,), {}, preserve_rng_state=True)
    >>> torch.equal(out, layer(x))
    True
    """
    if state.is_tracing or not torch.is_grad_enabled():
        return call(*args, **kwargs)
    leaves, structure = tree_flatten((args, kwargs))
    # Parameters stay where they are; other tensors are the region's inputs.
    is_input = [
        isinstance(leaf, torch.Tensor) and not isinstance(leaf, nn.Parameter) for leaf in leaves
    ]
    inputs = [leaf for leaf, chosen in zip(leaves, is_input, strict=True) if chosen]
    rest = [None if chosen else leaf for leaf, chosen in zip(leaves, is_input, strict=True)]
    as_given = [(args, kwargs)]  # for the forward: what it fills or changes is its caller's
    buffers = _Buffers(modules)
    streams = _Streams(preserve_rng_state)

    def run(*tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        filled = [
            next(given) if chosen else leaf for leaf, chosen in zip(rest, is_input, strict=True)
        ]
        rebuilt = tree_unflatten(filled, structure)
        own_args, own_kwargs = as_given.pop() if as_given else rebuilt
        token = _inside.set(True)
        try:
            with buffers.changed_once(), streams.drawn_again():
                return call(*own_args, **own_kwargs)
        finally:
            _inside.reset(token)

    with _offloaded_inputs():
        return torch_checkpoint(
            run, *inputs, use_reentrant=False, preserve_rng_state=preserve_rng_state
        )


class _Streams:
    """Random numbers of distributed layers, which torch's checkpoint knows nothing of."""

    def __init__(self, preserve: bool) -> None:
        self._preserve = preserve
        self._before: Snapshot | None = None

    @contextlib.contextmanager
    def drawn_again(self) -> Iterator[None]:
        if not self._preserve:
            yield
        elif self._before is None:
            self._before = Snapshot()
            yield
        else:
            with self._before.restored():
                yield


class _Buffers:
    """The buffers of a region: running statistics must not advance again in the recompute."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._all = [buffer for module in modules for buffer in module.buffers()]
        # Batch norm writes to its statistics without advancing their version.
        self._statistics = [
            buffer
            for module in modules
            for part in module.modules()
            if isinstance(part, _NormBase) and part.training
            for buffer in part.buffers(recurse=False)
        ]
        self._changing: list[torch.Tensor] | None = None  # known after the forward

    @contextlib.contextmanager
    def changed_once(self) -> Iterator[None]:
        if self._changing is None:
            versions = [buffer._version for buffer in self._all]
            yield
            self._changing = [
                buffer
                for buffer, version in zip(self._all, versions, strict=True)
                if buffer._version != version
            ] + self._statistics
            return
        values = [buffer.clone() for buffer in self._changing]
        try:
            yield
        finally:  # also when the recompute stops early, having all it needs
            with torch.no_grad():
                for buffer, value in zip(self._changing, values, strict=True):
                    buffer.copy_(value)


@contextlib.contextmanager
def _offloaded_inputs() -> Iterator[None]:
    """Inside, what a region saves for its recompute goes to the store of activations."""
    store = state.activation_store
    if store is None:
        yield
        return
    engine = state.require_engine()

    def pack(tensor: torch.Tensor) -> torch.Tensor | _runtime.StoredActivation:
        stored = store.put(tensor, engine.microbatch)
        return tensor if stored is None else stored

    def unpack(packed: torch.Tensor | _runtime.StoredActivation) -> torch.Tensor:
        return packed if isinstance(packed, torch.Tensor) else packed.take()

    # The region's own hooks lie inside these, so only its inputs come here.
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
