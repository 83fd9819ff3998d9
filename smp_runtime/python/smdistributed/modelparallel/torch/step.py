# SPDX-License-Identifier: Apache-2.0
"""``smp.step``: one training step over microbatches."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, overload

import torch

from smdistributed.modelparallel.torch._checks.input_check import check_inputs
from smdistributed.modelparallel.torch._checks.step_guards import (
    refused_in_a_step,
    with_whole_gradients,
    without_fast_paths,
)
from smdistributed.modelparallel.torch._metrics.reports import loss_of
from smdistributed.modelparallel.torch._objects import codec
from smdistributed.modelparallel.torch._objects.containers import detached
from smdistributed.modelparallel.torch._pipeline import attribute_writes
from smdistributed.modelparallel.torch._pipeline.attribute_writes import warn_of_counters
from smdistributed.modelparallel.torch._pipeline.splitting import Arguments, InputSplit
from smdistributed.modelparallel.torch._pipeline.step_output import StepOutput, collect_outputs
from smdistributed.modelparallel.torch._ranks import log, ranks
from smdistributed.modelparallel.torch._ranks.devices import computing_device
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import holding, state

__all__ = ["StepFunction", "StepOutput", "step"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@contextlib.contextmanager
def _in_step() -> Iterator[None]:
    state.step_context = contextvars.copy_context()
    sharded = None if state.model is None else state.model.sharded
    alike = contextlib.nullcontext() if sharded is None else sharded.alike()
    own = holding(state, in_step=True)
    with own, refused_in_a_step(), without_fast_paths(), attribute_writes.noted(), alike:
        yield


class StepFunction(Generic[P, R_co]):
    """A function whose tensor arguments are cut into microbatches. Its parameters are those of the
    decorated function ``P``; what it returns has a StepOutput where that one, of result ``R_co``,
    has a tensor."""

    def __init__(
        self,
        function: Callable[P, R_co],
        non_split_inputs: Collection[str],
        input_split_axes: Mapping[str, int],
        detach_outputs: bool,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function: Callable[..., Any] = function
        self._inputs = InputSplit(function, non_split_inputs, input_split_axes)
        self._detach_outputs = detach_outputs
        self._lengths_are_known = False

    # First for functions without annotations: their result, Any, is taken for NoReturn, too.
    @overload
    def __call__(self: StepFunction[P, NoReturn], *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(self: StepFunction[P, None], *args: P.args, **kwargs: P.kwargs) -> None: ...

    @overload
    def __call__(
        self: StepFunction[P, torch.Tensor], *args: P.args, **kwargs: P.kwargs
    ) -> StepOutput: ...

    @overload
    def __call__(
        self: StepFunction[P, tuple[torch.Tensor, torch.Tensor]], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[StepOutput, StepOutput]: ...

    @overload
    def __call__(
        self: StepFunction[P, tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[StepOutput, StepOutput, StepOutput]: ...

    @overload
    def __call__(
        self: StepFunction[P, dict[str, torch.Tensor]], *args: P.args, **kwargs: P.kwargs
    ) -> dict[str, StepOutput]: ...

    @overload
    def __call__(self: StepFunction[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state.require_initialized("a function decorated with smp.step")
        if state.in_step:
            raise SMPStepError(f"step {self._function.__qualname__} was called inside a step")
        if state.stop_save is not None:
            state.stop_save.before_step()
        model = state.model
        if state.onlooker is not None:
            samples = self._inputs.batch_size(args, kwargs)
            state.onlooker.first_step(lambda: self._trace(args, kwargs), samples)
        if model is not None:
            if not model.partitioned:
                model.partition(lambda: self._trace(args, kwargs))
            if model.self_check is not None:
                model.self_check.begin_step(
                    model, self._run, lambda: self._split_here(args, kwargs)
                )
            model.steps.before()
        reports = state.reports
        reports.begin_step()
        # Ranks that do not run the function may be fed anything.
        driver = ranks.pp_rank() == 0
        if driver and model is not None and model.checks.wants_batches:
            model.checks.before_batch(self._inputs.named(args, kwargs))
        session = state.require_initialized("a step")
        call = f"step {self._function.__qualname__}"
        needs = session.groups.ranks("PP") if model is None else model.steps.needed_ranks()
        with session.barriers.waiting(call, "step", needs):
            outputs, backward_ran = self._drive(args, kwargs) if driver else self._serve()
            loss = loss_of(outputs) if reports.want_loss else None
            if model is not None:
                model.steps.after(backward_ran, loss)
        if model is not None and model.self_check is not None:
            model.self_check.end_step(outputs, backward_ran)
        collected = collect_outputs(outputs)
        trained = torch.is_grad_enabled() and (backward_ran or model is None or model.training)
        samples = self._inputs.batch_size(args, kwargs) if driver else 0
        reports.end_step(state.require_engine().last_step(), samples, loss, trained)
        return collected

    def _compare_lengths(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warns, once, of a tensor that looks like no batch and is split like one."""
        if self._lengths_are_known or state.cfg.microbatches == 1:
            return
        self._lengths_are_known = True
        found = self._inputs.lengths(args, kwargs)
        first = next(iter(found), "")
        for name, length in found.items():
            if length != found[first]:
                log.warning(
                    f"argument {name} of step {self._function.__qualname__} has {length} entries "
                    f"where {first} has {found[first]}, and is cut into {state.cfg.microbatches} "
                    "microbatches, too; if it is no batch, list it: "
                    f'@smp.step(non_split_inputs=["{name}"])'
                )

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Arguments]:
        return self._inputs.split(args, kwargs, state.cfg.microbatches, _device())

    def _split_here(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Arguments]:
        """On the host, for who computes the step once more."""
        return self._inputs.split(args, kwargs, state.cfg.microbatches, torch.device("cpu"))

    def _check_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Once a model: later batches come from where the first one did."""
        if ranks.tp_size() == 1 or state.inputs_are_checked:
            return
        state.inputs_are_checked = True
        check_inputs(self._inputs.named(args, kwargs), bool(state.cfg.prescaled_batch))

    def _run(self, arguments: Arguments) -> Any:
        return self._function(*arguments[0], **arguments[1])

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with _in_step():
            self._run(self._split(args, kwargs)[0])

    def _drive(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], bool]:
        engine, count = state.require_engine(), state.cfg.microbatches
        contexts = [contextvars.copy_context() for _ in range(count)]
        microbatches: list[Arguments] = []
        outputs: list[Any] = [None] * count
        written: list[list[tuple[attribute_writes.Attribute, Any]]] = [[] for _ in range(count)]
        backward_ran = False

        accounts: list[attribute_writes.Writes] = []

        def run(microbatch: int) -> Any:
            account = attribute_writes.begin_account()
            accounts.append(account)
            output = self._run(microbatches[microbatch])
            written[microbatch] = account.values()
            return output

        def body(microbatch: int) -> None:
            if not microbatches:  # in here, so that other ranks learn of arguments that do not fit
                self._check_inputs(args, kwargs)
                self._compare_lengths(args, kwargs)
                microbatches.extend(self._split(args, kwargs))
            with state.reports.counting_forward():
                output = contexts[microbatch].run(run, microbatch)
            outputs[microbatch] = detached(output) if self._detach_outputs else output

        def collect() -> tuple[bytes, list[torch.Tensor]]:
            nonlocal backward_ran
            backward_ran = engine.take_backwards() > 0
            return self._pack(outputs, backward_ran) if ranks.pp_size() > 1 else (b"", [])

        # Steps of one kind make the same calls: of fewer microbatches they are another.
        kind = f"{self._function.__qualname__}, gradients {torch.is_grad_enabled()}, {count}"
        with _in_step(), with_whole_gradients():
            engine.drive(kind, count, body, collect)
        for attribute, value in (one for values in written for one in values):
            attribute.put(value)  # values of the last microbatch remain, as in one process
        if state.model is not None and state.model.partitioned and count > 1:
            warn_of_counters(state.model, accounts)
        return outputs, backward_ran

    def _pack(self, outputs: list[Any], backward_ran: bool) -> tuple[bytes, list[torch.Tensor]]:
        try:
            return codec.pack((outputs, backward_ran))
        except codec.REFUSALS as error:
            place = codec.place_that_stays("results", outputs)
            raise SMPValidationError(
                f"the result of step {self._function.__qualname__} cannot travel to the other "
                f"partitions, which return it too: {error}, at {place}, the results of all "
                "microbatches; return tensors and plain values"
            ) from error

    def _serve(self) -> tuple[list[Any], bool]:
        engine = state.require_engine()
        with _in_step(), with_whole_gradients():
            definition, tensors = engine.serve()
        engine.take_backwards()
        outputs, backward_ran = codec.unpack(definition, tensors)
        return outputs, backward_ran


def _device() -> torch.device | None:
    """Device on which this rank computes; scripts may leave batches on the CPU."""
    model = state.model
    if model is None:
        return None
    if not model.partitioned:  # the trace runs where the script's model is
        return next((p.device for p in model.parameters()), None)
    # Parameters of other partitions stay where they were made, which may be nowhere near.
    return next((p.device for p in model.local_parameters()), computing_device())


@overload
def step(function: Callable[P, R]) -> StepFunction[P, R]: ...


@overload
def step(
    *,
    non_split_inputs: Collection[str] = ...,
    input_split_axes: Mapping[str, int] = ...,
    detach_outputs: bool = ...,
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Collection[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Decorates the function of one step: forward, ``model.backward(loss)``, what to return.

    Tensor arguments are split along axis 0 into ``microbatches`` equal parts, also inside
    containers. The function runs once per microbatch, on rank 0 of each pipeline group; all ranks
    of the group call it and get what it returns, with a :class:`StepOutput` for each tensor and a
    list for each other value.

    Args:
        non_split_inputs: names of parameters to pass on whole.
        input_split_axes: axes other than 0, by parameter name.
        detach_outputs: whether returned tensors lose their graph.

    Raises:
        SMPValidationError: an axis that ``microbatches`` does not divide, or an unknown name.
        SMPStepError: another rank failed; its traceback is in the text.
        SMPConnectionError: another rank was lost, or nothing moved for SMP_TIMEOUT_SECONDS.
    """

    def decorate(decorated: Callable[P, R]) -> StepFunction[P, R]:
        return StepFunction(decorated, non_split_inputs, input_split_axes or {}, detach_outputs)

    return decorate if function is None else decorate(function)
