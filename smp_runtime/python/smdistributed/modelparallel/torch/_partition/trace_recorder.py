# SPDX-License-Identifier: Apache-2.0
"""Records what a model's operations cost and what flows between its modules, while it runs."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from smdistributed.modelparallel.torch._metrics.model_flops import operation_flops


@dataclass
class Seen:
    """Record of one module in the trace, over all its calls."""

    order: int
    caller: nn.Module | None
    calls: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    child_output_bytes: int = 0
    saved_bytes: int = 0
    """Bytes that autograd keeps for the backward of the module's own operations."""
    time_ns: int = 0
    """Time of the module's own operations, without its children's."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tensors of its first call."""
    work: Counter[Work] = field(default_factory=Counter)
    """The module's own operations, and how many are alike."""


class Work(NamedTuple):
    """One operation of a module, forward."""

    flops: int
    bytes: int
    """Bytes that it reads and writes, without those of parameters."""
    parameter_bytes: int


_LOOKUPS = (torch.ops.aten.embedding, torch.ops.aten.index, torch.ops.aten.index_select)


@dataclass
class Flow:
    """A tensor that one module made and others read. None stands for the step's own code."""

    bytes: int
    producer: nn.Module | None
    consumers: dict[nn.Module | None, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Rates:
    """Assumed speeds of a device, so that times need no clock: the roofline of an operation.

    Only their ratio to each other and to the speed of the links decides anything.
    """

    flops: float
    bytes: float

    def time_ns(self, flops: float, size: float) -> int:
        """
        >>> Rates(flops=1e9, bytes=1e9).time_ns(5, 3)
        5
        """
        return math.ceil(1e9 * max(flops / self.flops, size / self.bytes))


CPU_RATES = Rates(flops=5e10, bytes=1e10)
GPU_RATES = Rates(flops=1e14, bytes=2e12)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


class Recorder(TorchDispatchMode):
    """Watches modules through hooks and operations through dispatch, and charges one to the other.

    An operation belongs to the module whose forward runs it, not to the modules above.
    """

    def __init__(self, model: nn.Module, rates: Rates) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[nn.Module, Seen] = {}
        self.outside = Seen(-1, None)
        """Record of the step's own code: its work, and what autograd keeps of it."""
        self.flows: list[Flow] = []
        self.flops = 0
        self._rates = rates
        self._stack: list[nn.Module] = []
        self._flow_of: dict[int, tuple[StorageWeakRef, Flow]] = {}
        self._kept: list[StorageWeakRef] = []  # keep the keys from being used for others
        self._own_storages: set[int] = set()
        self.reads: dict[nn.Module, set[nn.Module]] = {}
        """By module, whose parameters its own operations read."""
        self._holders: dict[int | None, list[nn.Module]] = {}
        for module in model.modules():
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._holders.setdefault(_storage_key(parameter), []).append(module)
        for tensor in [*model.parameters(), *model.buffers()]:
            if _storage_key(tensor) is not None:
                self._keep_out(tensor)
        self._saved: dict[int | None, StorageWeakRef] = {}

    # --- Modules ---

    @contextlib.contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        with _hooked(model, self._enter, self._leave), hooks, self:
            yield

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        caller = self._stack[-1] if self._stack else None
        seen = self.seen.get(module)
        inputs = tensors_in((args, kwargs))
        if seen is None:
            shapes = tuple(tuple(tensor.shape) for tensor in inputs)
            seen = self.seen[module] = Seen(len(self.seen), caller, shapes=shapes)
        seen.calls += 1
        seen.input_bytes += bytes_of(inputs)
        self._stack.append(module)

    def _leave(self, _module: nn.Module, _args: Any, output: Any) -> None:
        seen = self.seen[self._stack.pop()]
        size = bytes_of(tensors_in(output))
        seen.output_bytes += size
        if self._stack:
            self.seen[self._stack[-1]].child_output_bytes += size

    # --- Operations ---

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        inputs, outputs = tensors_in((args, kwargs)), tensors_in(out)
        if not outputs:
            return out
        read = {_storage_key(tensor) for tensor in inputs}
        self._note_reads(read)
        view = func.is_view or all(_storage_key(tensor) in read for tensor in outputs)
        if view and not read.isdisjoint(self._own_storages):
            # By shapes only, the view of a parameter has a storage of its own.
            for tensor in outputs:
                self._keep_out(tensor)
        self._follow(inputs, outputs)
        if not view or func._schema.is_mutable:
            flops = operation_flops(func, args, kwargs, out)
            seen = self.seen[self._stack[-1]] if self._stack else self.outside
            seen.work[self._work_of(func, flops, inputs, outputs)] += 1
            if self._stack:
                self.flops += flops
                moved = bytes_of(inputs) + bytes_of(outputs)
                seen.time_ns += self._rates.time_ns(flops, moved)
        return out

    def _work_of(
        self, func: Any, flops: int, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> Work:
        own = [tensor for tensor in inputs if _storage_key(tensor) in self._own_storages]
        if func._overloadpacket in _LOOKUPS:
            # The forward reads the rows that it returns, the backward writes a gradient of all: of
            # the three forwards that a step takes, a third each.
            return Work(flops, 2 * bytes_of(outputs), bytes_of(own) // 3)
        others = bytes_of(inputs) - bytes_of(own)
        return Work(flops, others + bytes_of(outputs), bytes_of(own))

    def _note_reads(self, storages: set[int | None]) -> None:
        if not self._stack:
            return
        here = self._stack[-1]
        for storage in storages & self._holders.keys():
            if here not in self._holders[storage]:
                self.reads.setdefault(here, set()).update(self._holders[storage])

    def _keep_out(self, tensor: torch.Tensor) -> None:
        """Leaves out a tensor of the model, which the forward neither makes nor keeps."""
        reference = _reference(tensor)
        self._own_storages.add(reference.cdata)
        self._kept.append(reference)

    def _follow(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        here = self._stack[-1] if self._stack else None
        for tensor in inputs:
            flow = self._flow(tensor, None)
            if flow is not None and flow.producer is not here:
                flow.consumers[here] = None
        for tensor in outputs:
            self._flow(tensor, here)

    def _flow(self, tensor: torch.Tensor, producer: nn.Module | None) -> Flow | None:
        """Flow that the tensor's storage belongs to; a new one was made by ``producer``."""
        storage = _storage_key(tensor)
        if storage is None or storage in self._own_storages:
            return None
        known = self._flow_of.get(storage)
        if known is None:
            # The reference keeps the key from being used again for another storage.
            reference = _reference(tensor)
            known = self._flow_of[storage] = (reference, Flow(tensor.nbytes, producer))
            self.flows.append(known[1])
        return known[1]

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = _storage_key(tensor)
        counted = storage is None or storage in self._own_storages or storage in self._saved
        if not counted:
            self._saved[storage] = _reference(tensor)
            seen = self.seen[self._stack[-1]] if self._stack else self.outside
            # A view keeps all of its storage: those of a query alone also key and value.
            seen.saved_bytes += tensor.untyped_storage().nbytes()
        return tensor


def _reference(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())


def _storage_key(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without storage
        return None


class Stopwatch:
    """Times modules by the clock, each without those that it calls."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self.own_ns: dict[nn.Module, int] = {}
        self._now = now
        self._stack: list[list[int]] = []  # when it was entered, what its children took

    @contextlib.contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        with _hooked(model, self._enter, self._leave):
            yield

    def _enter(self, _module: nn.Module, _args: Any, _kwargs: Any) -> None:
        self._stack.append([self._now(), 0])

    def _leave(self, module: nn.Module, _args: Any, _output: Any) -> None:
        entered, children = self._stack.pop()
        elapsed = self._now() - entered
        self.own_ns[module] = self.own_ns.get(module, 0) + max(0, elapsed - children)
        if self._stack:
            self._stack[-1][1] += elapsed


@contextlib.contextmanager
def _hooked(
    model: nn.Module, enter: Callable[..., None], leave: Callable[..., None]
) -> Iterator[None]:
    """Inside, each module of ``model`` calls ``enter`` before its forward and ``leave`` after."""
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
