# SPDX-License-Identifier: Apache-2.0
"""What the partitioner must know of a model, from a run of the step on one microbatch."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from smdistributed import _runtime
from smdistributed.modelparallel.torch.log import warning
from smdistributed.modelparallel.torch.trace_placement import on_gpu
from smdistributed.modelparallel.torch.trace_recorder import (
    CPU_RATES,
    GPU_RATES,
    Flow,
    Recorder,
    Seen,
    Stopwatch,
)

#: Modules that only hold others: their forward is never called.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_TIMED_RUNS = 3


class EndOfTrace(BaseException):
    """Leaves the step function at ``model.backward``: nothing behind it matters to a partition.

    No ``Exception``, so that a script's ``except Exception`` does not stop it.
    """


@dataclass(frozen=True)
class TraceOptions:
    """How to trace; the names are those of ``DistributedModel``."""

    device: str = "cpu"
    """``cpu``: where the parameters are; ``gpu``: module by module on the current CUDA device, as
    ``cpu`` without one; ``meta``: shapes only, nothing is computed."""
    execution_times: bool = False
    """By the clock. Otherwise from counted operations, alike in every run."""
    memory_usage: bool = False
    """What autograd keeps. Otherwise the sizes of what modules return."""


@dataclass
class Trace:
    """The modules that ran, in order. Empty without tracing."""

    seen: dict[nn.Module, Seen] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    memory_usage: bool = False

    @property
    def empty(self) -> bool:
        return not self.seen


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
                    with torch.no_grad():
                        buffer.copy_(values)


def _clone(buffer: torch.Tensor | None) -> torch.Tensor | None:
    return None if buffer is None else buffer.detach().clone()


def trace_step(
    model: nn.Module, run: Callable[[], Any], options: TraceOptions | None = None
) -> Trace:
    """Runs the step function, watching which modules it calls, what they cost and what they read.

    ``run`` is the step on one microbatch; it may end with :class:`EndOfTrace`. It runs once; four
    times more with ``execution_times``. Parameters, buffers and random generators are as before
    afterwards.
    """
    options = options or TraceOptions()
    gpu = options.device == "gpu" and torch.cuda.is_available()
    recorder = Recorder(model, GPU_RATES if torch.cuda.is_available() else CPU_RATES)
    grad = torch.enable_grad() if options.memory_usage else torch.no_grad()
    shapes_only = options.device == "meta"
    fake = FakeTensorMode(allow_non_fake_inputs=True) if shapes_only else contextlib.nullcontext()
    with _nothing_changed(model), on_gpu(model, gpu), grad, fake, recorder.watching(model):
        _run_to_backward(run)
    if options.execution_times and shapes_only:
        warning(
            "trace_execution_times is without effect: only shapes are traced, because trace_device "
            'is "meta" or skip_tracing is set; partitioned by counted operations'
        )
    elif options.execution_times:
        _measure_times(model, run, recorder.seen, gpu)
    return Trace(recorder.seen, recorder.flows, options.memory_usage)


def _run_to_backward(run: Callable[[], Any]) -> None:
    with contextlib.suppress(EndOfTrace):
        run()


def _measure_times(
    model: nn.Module, run: Callable[[], Any], seen: dict[nn.Module, Seen], gpu: bool
) -> None:
    """Medians, the same for modules of one kind, to three digits: noise must not decide."""
    samples: dict[nn.Module, list[int]] = {module: [] for module in seen}
    for number in range(1 + _TIMED_RUNS):
        watch = Stopwatch(_synchronised_now if gpu else time.perf_counter_ns)
        with _nothing_changed(model), on_gpu(model, gpu), torch.no_grad(), watch.watching(model):
            _run_to_backward(run)
        if number > 0:  # the first one warms caches up
            for module in seen:
                samples[module].append(watch.own_ns.get(module, 0))
    alike: dict[Any, list[nn.Module]] = {}
    for module, what in seen.items():
        parameters = tuple((p.dtype, tuple(p.shape)) for p in module.parameters())
        alike.setdefault((type(module), parameters, what.shapes), []).append(module)
    for modules in alike.values():
        mean = statistics.fmean(statistics.median(samples[module]) for module in modules)
        for module in modules:
            seen[module].time_ns = round_to_digits(mean)


def _synchronised_now() -> int:
    torch.cuda.synchronize()
    return time.perf_counter_ns()


def round_to_digits(amount: float, digits: int = 3) -> int:
    """
    >>> round_to_digits(123456.7), round_to_digits(12)
    (123000, 12)
    """
    return int(float(f"{amount:.{digits}g}"))


# --- The tree ---


def _execution_order(children: list[nn.Module], trace: Trace) -> list[nn.Module]:
    """Children that ran first come first; those that never ran keep their order behind them."""
    last = len(trace.seen)

    def first_run(module: nn.Module) -> int:
        return min((trace.seen[m].order for m in module.modules() if m in trace.seen), default=last)

    return sorted(children, key=first_run)


class _Parents:
    """Under which of its parents a module goes: the one that called it first, if one did."""

    def __init__(self, model: nn.Module, trace: Trace) -> None:
        self._trace = trace
        self._holders: dict[nn.Module, list[nn.Module]] = {}
        for module in model.modules():
            for child in module.children():
                self._holders.setdefault(child, []).append(module)

    def takes(self, parent: nn.Module, child: nn.Module) -> bool:
        seen = self._trace.seen.get(child)
        holders = self._holders[child]
        if seen is None or len(holders) == 1:
            return True
        callers = [holder for holder in holders if self._may_call(holder, seen.caller)]
        return not callers or parent in callers

    def _may_call(self, holder: nn.Module, caller: nn.Module | None) -> bool:
        """Whether ``holder`` is the caller, or a container below it that is never run."""
        if holder is caller:
            return True
        if holder in self._trace.seen:
            return False
        return any(self._may_call(above, caller) for above in self._holders.get(holder, []))


def module_tree(
    model: nn.Module, trace: Trace, pins: Callable[[nn.Module], int | None]
) -> _runtime.ModuleTree:
    """The tree of ``model`` for a partitioner; names are those of ``named_modules()``.

    Without a trace modules count as called in the order of their registration.
    """
    tree = _runtime.ModuleTree()
    parameter_ids: dict[nn.Parameter, int] = {}
    for name, parameter in model.named_parameters():
        parameter_ids[parameter] = tree.add_parameter(name, parameter.nbytes)
    names = {module: name for name, module in model.named_modules()}
    parents = _Parents(model, trace)
    nodes: dict[nn.Module, int] = {}

    def add(module: nn.Module, parent: int) -> None:
        seen = trace.seen.get(module)
        called = seen is not None or (trace.empty and not isinstance(module, _CONTAINERS))
        nodes[module] = node = tree.add_module(
            name=names[module],
            parameters=[parameter_ids[p] for p in module._parameters.values() if p is not None],
            activation_bytes=_activation_bytes(seen, trace.memory_usage) if seen else 0,
            time_ns=seen.time_ns if seen else 0,
            input_bytes=seen.input_bytes if seen else 0,
            output_bytes=seen.output_bytes if seen else 0,
            calls=seen.calls if seen else 1,
            called=called or parent < 0,
            pin=pins(module),
            passes_on=_passes_on(module),
            parent=parent,
        )
        for child in _execution_order(list(module.children()), trace):
            if child not in nodes and parents.takes(module, child):
                add(child, node)

    add(model, -1)
    for name, module in model.named_modules():
        if module not in nodes:  # its caller is below itself
            add(module, nodes[model.get_submodule(name.rpartition(".")[0])])

    # The step's own code runs where the root does.
    def node_of(module: nn.Module | None) -> int:
        return 0 if module is None else nodes[module]

    for flow in trace.flows:
        if flow.consumers:
            readers = [node_of(module) for module in flow.consumers]
            tree.add_tensor(flow.bytes, node_of(flow.producer), readers)
    return tree


def _passes_on(module: nn.Module) -> bool:
    """Whether children hand their results to each other, as the pipeline routes them."""
    return type(module).forward is nn.Sequential.forward


def _activation_bytes(seen: Seen, measured: bool) -> int:
    if measured:
        return seen.saved_bytes
    return max(0, seen.output_bytes - seen.child_output_bytes)
