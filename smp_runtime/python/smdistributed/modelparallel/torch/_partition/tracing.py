# SPDX-License-Identifier: Apache-2.0
"""Runs the step on one microbatch, to see what the partitioner must know of a model; on a GPU where
it does not fit, each module is there only while it runs."""

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
from torch.utils._pytree import tree_map_only

from smdistributed.modelparallel.torch._objects.codec import reachable_objects
from smdistributed.modelparallel.torch._objects.object_states import become, is_same, state_of
from smdistributed.modelparallel.torch._partition.parameter_readers import Reads
from smdistributed.modelparallel.torch._partition.trace_recorder import (
    CPU_RATES,
    GPU_RATES,
    Flow,
    Recorder,
    Seen,
    Stopwatch,
)
from smdistributed.modelparallel.torch._ranks.log import warning

_TIMED_RUNS = 3


class EndOfTrace(BaseException):
    """Leaves the step function at ``model.backward``: nothing behind it matters to a partition.

    No ``Exception``, so that a script's ``except Exception`` does not stop it.
    """


@dataclass(frozen=True)
class TraceOptions:
    """Options of a trace; the names are those of ``DistributedModel``."""

    device: str = "cpu"
    """``cpu``: where the parameters are; ``gpu``: module by module on the current CUDA device, as
    ``cpu`` without one; ``meta``: shapes only, nothing is computed."""
    execution_times: bool = False
    """Times by the clock. Otherwise from counted operations, alike in every run."""
    memory_usage: bool = False
    """Memory that autograd keeps. Otherwise the sizes of what modules return."""


@dataclass
class Trace:
    """The modules that ran, in order. Empty without tracing."""

    seen: dict[nn.Module, Seen] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    reads: Reads = field(default_factory=dict)
    """For each module, those whose parameters it computed with by itself."""
    memory_usage: bool = False
    flops: int = 0
    """FLOPs of the forward of one microbatch."""
    outside: Seen | None = None
    """Record of the step's own code."""

    @property
    def empty(self) -> bool:
        return not self.seen


@contextlib.contextmanager
def _nothing_changed(model: nn.Module) -> Iterator[None]:
    """Restores random generators, and what a forward changes or sets on modules: buffers, hooks,
    attributes and what is in them, as far as it can be pickled."""
    kept = {
        module: {name: (buffer, _clone(buffer)) for name, buffer in module._buffers.items()}
        for module in model.modules()
    }
    attributes = [(module, dict(vars(module))) for module in kept]
    holders = [(obj, state_of(obj)) for obj in _changeable(attributes)]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for module, own in attributes:
            marks = {
                name: value for name, value in vars(module).items() if name.startswith("_smp_")
            }
            vars(module).clear()
            vars(module).update(own | marks)
        for obj, state in holders:
            if state is not None and not is_same(state, state_of(obj)):
                become(obj, state)
        for module, buffers in kept.items():
            module._buffers.clear()
            for name, (buffer, values) in buffers.items():
                module._buffers[name] = buffer
                if buffer is not None and values is not None:
                    with torch.no_grad():
                        buffer.copy_(values)


def _changeable(attributes: list[tuple[nn.Module, dict[str, Any]]]) -> list[Any]:
    """The objects in these that can change, other than parameters, buffers and modules."""
    holders = [
        value
        for _, own in attributes
        for name, value in own.items()
        if name not in ("_parameters", "_buffers", "_modules")
    ]
    return reachable_objects(holders)


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
    return Trace(
        recorder.seen,
        recorder.flows,
        recorder.reads,
        options.memory_usage,
        recorder.flops,
        recorder.outside,
    )


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


@contextlib.contextmanager
def on_gpu(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Within, calls of ``model`` compute on the current CUDA device, if ``wanted``.

    A module's own parameters and buffers move there when it is entered and back when it is left;
    what the outermost call returns comes back to the CPU, where the script expects it. A model that
    is on a GPU already stays as it is.
    """
    first = next(model.parameters(), None)
    if not wanted or first is None or first.is_cuda:
        yield
        return
    swap = _Swap(torch.device("cuda", torch.cuda.current_device()))
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(swap.enter, with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(swap.leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        swap.put_all_back()


class _Swap:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._depth = 0
        self._users: dict[nn.Module, int] = {}
        self._home: dict[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        self._depth += 1
        self._users[module] = self._users.get(module, 0) + 1
        if self._users[module] == 1:
            own = [*module._parameters.values(), *module._buffers.values()]
            # An outer module has already moved the tensors that it shares with this one.
            self._home[module] = [(t, t.data) for t in own if t is not None and not t.is_cuda]
            for tensor, data in self._home[module]:
                tensor.data = data.to(self._device)
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device), (args, kwargs))

    def leave(self, module: nn.Module, _args: Any, output: Any) -> Any:
        self._depth -= 1
        self._users[module] -= 1
        if self._users[module] == 0:
            self._put_back(module)
        if self._depth > 0:
            return output
        return tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), output)

    def _put_back(self, module: nn.Module) -> None:
        for tensor, data in self._home.pop(module, []):
            tensor.data = data

    def put_all_back(self) -> None:
        for module in list(self._home):
            self._put_back(module)
