# SPDX-License-Identifier: Apache-2.0
"""What the partitioner must know of a model, from one run of the step on one microbatch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime

#: Modules that only hold others: their forward is never called.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class EndOfTrace(BaseException):
    """Leaves the step function at ``model.backward``: nothing behind it matters to a partition.

    No ``Exception``, so that a script's ``except Exception`` does not stop it.
    """


@dataclass
class _Seen:
    """What the trace saw of one module."""

    order: int
    caller: nn.Module | None
    output_bytes: int = 0
    child_output_bytes: int = 0
    time_ns: int = 0
    child_time_ns: int = 0


@dataclass
class Trace:
    """The modules that ran, in order. Empty without tracing."""

    seen: dict[nn.Module, _Seen] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.seen


def _tensor_bytes(tree: Any) -> int:
    leaves, _ = torch.utils._pytree.tree_flatten(tree)
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))


@contextlib.contextmanager
def _nothing_changed(model: nn.Module) -> Iterator[None]:
    """Restores random generators and buffers, also those that a forward registers anew."""
    kept = {
        module: {name: (buffer, _clone(buffer)) for name, buffer in module._buffers.items()}
        for module in model.modules()
    }
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for module, buffers in kept.items():
            module._buffers.clear()
            for name, (buffer, values) in buffers.items():
                module._buffers[name] = buffer
                if buffer is not None and values is not None:
                    buffer.copy_(values)


def _clone(buffer: torch.Tensor | None) -> torch.Tensor | None:
    return None if buffer is None else buffer.clone()


def trace_step(model: nn.Module, run: Callable[[], Any]) -> Trace:
    """Runs the step function once, watching which modules it calls.

    ``run`` is the step on one microbatch; it may end with :class:`EndOfTrace`.
    """
    trace = Trace()
    stack: list[tuple[nn.Module, int]] = []
    handles = []

    def enter(module: nn.Module, _args: Any) -> None:
        if module not in trace.seen:
            trace.seen[module] = _Seen(len(trace.seen), stack[-1][0] if stack else None)
        stack.append((module, time.perf_counter_ns()))

    def leave(module: nn.Module, _args: Any, output: Any) -> None:
        entered = stack.pop()[1]
        seen, elapsed, size = (
            trace.seen[module],
            time.perf_counter_ns() - entered,
            _tensor_bytes(output),
        )
        seen.time_ns += elapsed
        seen.output_bytes += size
        if stack:
            caller = trace.seen[stack[-1][0]]
            caller.child_time_ns += elapsed
            caller.child_output_bytes += size

    with torch.no_grad(), _nothing_changed(model):
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(enter))
            handles.append(module.register_forward_hook(leave))
        try:
            run()
        except EndOfTrace:
            pass
        finally:
            for handle in handles:
                handle.remove()
    return trace


def _execution_order(children: list[nn.Module], trace: Trace) -> list[nn.Module]:
    """Children that ran first come first; those that never ran keep their order behind them."""
    last = len(trace.seen)

    def first_run(module: nn.Module) -> int:
        return min((trace.seen[m].order for m in module.modules() if m in trace.seen), default=last)

    return sorted(children, key=first_run)


def module_tree(
    model: nn.Module,
    trace: Trace,
    pins: Callable[[nn.Module], int | None],
    *,
    with_times: bool = False,
) -> _runtime.ModuleTree:
    """The tree of ``model`` for a partitioner; names are those of ``named_modules()``.

    Without a trace modules count as called in the order of their registration. Times are left out
    unless asked for: they differ from run to run, and with them the partition would.
    """
    tree = _runtime.ModuleTree()
    parameter_ids: dict[nn.Parameter, int] = {}
    for name, parameter in model.named_parameters():
        parameter_ids[parameter] = tree.add_parameter(name, parameter.nbytes)
    names = {module: name for name, module in model.named_modules()}
    added: set[nn.Module] = set()

    def add(module: nn.Module, parent: int) -> None:
        added.add(module)
        seen = trace.seen.get(module)
        called = seen is not None or (trace.empty and not isinstance(module, _CONTAINERS))
        node = tree.add_module(
            name=names[module],
            parameters=[parameter_ids[p] for p in module._parameters.values() if p is not None],
            activation_bytes=max(0, seen.output_bytes - seen.child_output_bytes) if seen else 0,
            time_ns=max(0, seen.time_ns - seen.child_time_ns) if seen and with_times else 0,
            called=called or parent < 0,
            pin=pins(module),
            parent=parent,
        )
        for child in _execution_order(list(module.children()), trace):
            if child not in added:
                add(child, node)

    add(model, -1)
    return tree
