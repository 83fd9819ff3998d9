# SPDX-License-Identifier: Apache-2.0
"""The data-parallel copies of a model: equal values at first, means of their gradients later.
Copies that have no more batches accompany the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._slices.parameter_slices import is_scaled_batch
from smdistributed.modelparallel.torch.exceptions import (
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state


class Join:
    """The steps inside ``model.join()``, on one rank.

    Every step begins with a count of the replicas that still have batches, and says after its
    backward whether gradients are to be averaged; a replica that is through takes part in that with
    no gradients of its own.
    """

    def __init__(self, model: Model, divide_by_all: bool, throw: bool) -> None:
        session = state.require_initialized("DistributedModel.join")
        self._model = model
        self._divide_by_all, self._throw = divide_by_all, throw
        self._session, self._group = session, session.groups.cpu_group("DP")
        self._rank, self._size = session.groups.index("DP"), len(session.groups.ranks("DP"))
        self.steps = 0
        self.active = self._size

    def begin_step(self, *, active: bool) -> int:
        """Returns the first replica that still has batches, -1 if none has."""
        if self._size == 1:
            return 0 if active else -1
        flags = torch.zeros(self._size, dtype=torch.int32)
        flags[self._rank] = int(active)
        self._all_reduce(flags)
        self.active = int(flags.sum())
        if self._throw and 0 < self.active < self._size:
            raise SMPStepError(
                f"{self._size - self.active} of {self._size} replicas have no more batches, and "
                "join was told to end then (throw_on_early_termination)"
            )
        self.steps += active
        return int(flags.argmax()) if self.active else -1

    def backward_ran(self, ran: bool) -> bool:
        """True if a backward ran on the replicas that still have batches."""
        if self._size == 1:
            return ran
        flag = torch.tensor([int(ran)])
        self._all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag.item())

    def scale_gradients(self, gradients: list[torch.Tensor]) -> None:
        """From the mean over all replicas to that over those with batches, where asked for."""
        if not self._divide_by_all and gradients and self.active:
            torch._foreach_mul_(gradients, self._size / self.active)

    def finish(self) -> None:
        """Accompanies the others, then takes the model of a replica that made all steps."""
        while (root := self.begin_step(active=False)) >= 0:
            self._model.steps.shadow(root)
        if self._size == 1:
            return
        steps = torch.zeros(self._size, dtype=torch.int64)
        steps[self._rank] = self.steps
        self._all_reduce(steps)
        model = self._model
        tensors = [p.detach() for p in model.local_parameters()] + list(model.local_buffers())
        group = state.internal_group_name("DP")
        watch = self._session.barriers.watch
        _runtime.broadcast_tensors(group, tensors, int(steps.argmax()), watch=watch)

    def _all_reduce(
        self, tensor: torch.Tensor, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
    ) -> None:
        self._session.all_reduce("DistributedModel.join", tensor, self._group, operation)


@contextmanager
def joined(model: Model, replicas: Replicas, divide_by_all: bool, throw: bool) -> Iterator[None]:
    """Steps inside may be of different numbers on different replicas."""
    join = replicas.join = Join(model, divide_by_all, throw)
    try:
        yield
        join.finish()
    finally:
        replicas.join = None


CommHook = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Averaging:
    """A script's choices for the averaging of gradients; see DistributedModel."""

    backward_passes_per_step: int
    bucket_bytes: int
    overlapping: bool
    broadcast_buffers: bool


class Replicas:
    """Copies of this rank's partition and their common work; calls that send or average tensors are
    collective over them. Without ``ddp`` there is one copy, and nothing to do.

    Parameters that see the batches of a whole tensor-parallel group have copies among the ranks of
    the reduced data-parallel group only; see _slices.parameter_slices.
    """

    def __init__(self, how: Averaging) -> None:
        self.join: Join | None = None
        """Set inside ``DistributedModel.join``."""
        self.reducers: list[_runtime.GradientReducer] = []
        """Reducers of the gradients that no shards hold; none before ``align``."""
        self.due: bool | None = None
        """Gradients are due at the end of the next step, where a training loop knows it; by default
        every ``backward_passes_per_step`` backwards."""
        self.is_accumulating = False
        """Gradients of steps wait for others, with which they are to be averaged."""
        self.averaged: set[nn.Parameter] | None = None
        """Parameters whose gradients were averaged last; None where there is nothing to average."""
        self._how = how
        self._hook: tuple[Any, CommHook] | None = None
        self._backwards = 0

    @property
    def has_hook(self) -> bool:
        return self._hook is not None

    def align(self, parameters: Sequence[nn.Parameter], buffers: Sequence[torch.Tensor]) -> None:
        """Gives all copies the values of the first, and makes reducers of their gradients."""
        if not state.cfg.ddp:
            return
        scaled = [p for p in parameters if is_scaled_batch(p)]
        others = [p for p in parameters if not is_scaled_batch(p)]
        _send("DP", [tensor.detach() for tensor in [*buffers, *others]])
        _send("RDP", [p.detach() for p in scaled])
        if shard_plan() is not None:
            return
        # Frozen ones too: a script may thaw them later.
        self._add_reducer("DP", others)
        if ranks.tp_size() > 1:
            self._add_reducer("RDP", scaled)

    def _add_reducer(self, group: str, parameters: list[nn.Parameter]) -> None:
        # A fixed order of work leaves no room for an order by readiness.
        overlapping = self._how.overlapping and not state.cfg.deterministic_server
        session = state.require_initialized("the averaging of gradients")
        reducer = _runtime.GradientReducer(
            state.internal_group_name(group),
            parameters,
            self._how.bucket_bytes,
            overlapping,
            _may_join(),
            session.barriers.watch,
            _flags_group_name(group, parameters),
            session.recorder,
        )
        if self._hook is not None:
            reducer.set_comm_hook(*self._hook)
        self.reducers.append(reducer)

    def send_value(self, parameter: nn.Parameter, value: torch.Tensor) -> None:
        """Gives all copies of a late parameter the value of the first."""
        _send("RDP" if is_scaled_batch(parameter) else "DP", [value])

    def send_buffers(self, buffers: Iterable[torch.Tensor], root: int) -> None:
        """Gives all copies the buffers of the copy ``root``, where the script wants that."""
        if state.cfg.ddp and self._how.broadcast_buffers:
            _send("DP", list(buffers), root)

    def begin_step(self) -> bool:
        """Begins a step; returns True if gradients are due at its end, after a backward."""
        due = self._is_due(self._backwards + 1)
        for reducer in self.reducers:
            reducer.begin_step(due and self.join is None)
        return due

    @property
    def gradients_are_due(self) -> bool:
        """True if gradients are averaged after the last backward that counted."""
        return self._is_due(self._backwards)

    def count_backward(self) -> bool:
        """Counts the backward of a step; returns True if gradients are due now."""
        self._backwards += 1
        due = self._is_due(self._backwards)
        self.is_accumulating = not due
        return due

    def forget_accumulation(self) -> None:
        """The script has dropped the gradients that wait: the next step is the first of others."""
        if self.is_accumulating:
            self.is_accumulating, self._backwards = False, 0

    @property
    def backward_passes_per_step(self) -> int:
        return self._how.backward_passes_per_step

    def _is_due(self, backwards: int) -> bool:
        if self.due is not None:
            return self.due
        return backwards % self._how.backward_passes_per_step == 0

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Leaves the means over all copies in the gradients of ``parameters``."""
        session = state.require_initialized("the averaging of gradients")
        needs = session.groups.ranks("DP")
        with session.barriers.waiting("the averaging of gradients", "averaging", needs):
            for reducer in self.reducers:
                reducer.average()
        own = [parameter for parameter in parameters if parameter.grad is not None]
        if self.reducers and self.join is not None:
            self.join.scale_gradients([p.grad for p in own if p.grad is not None])
        self.averaged = set(own) if self.reducers and self.join is None else None

    def set_comm_hook(self, hook_state: Any, hook: CommHook) -> None:
        """``hook`` reduces the buckets from now on; see DistributedModel.register_comm_hook."""
        if not state.cfg.ddp or not self._how.overlapping:
            raise SMPValidationError(
                "register_comm_hook needs ddp=True and overlapping_allreduce=True"
            )
        if not callable(hook):
            raise SMPValidationError(f"register_comm_hook got {hook!r}; expected a callable")
        if ranks.tp_size() > 1:
            raise SMPUnsupportedError(
                "register_comm_hook is not available with tensor parallelism: some gradients are "
                "averaged over the data-parallel group and some over the reduced one"
            )
        if shard_plan() is not None:
            raise SMPValidationError(
                "register_comm_hook reduces whole gradients, and this job's are flat shards; it "
                "cannot be combined with sharded or 16-bit state"
            )
        if self._hook is not None:
            raise SMPValidationError("register_comm_hook was called twice; a model has one hook")
        self._hook = (hook_state, hook)
        for reducer in self.reducers:
            reducer.set_comm_hook(hook_state, hook)

    @staticmethod
    def refuse_join() -> None:
        """Raises SMPUnsupportedError where copies must make the same number of steps."""
        if _may_join():
            return
        if ranks.tp_size() > 1:
            raise SMPUnsupportedError(
                "DistributedModel.join is not available with tensor parallelism: give all ranks "
                "the same number of batches"
            )
        raise SMPUnsupportedError(
            "DistributedModel.join is not available with sharded or 16-bit state: give all "
            "replicas the same number of batches"
        )


def _send(group: str, tensors: list[torch.Tensor], root: int = 0) -> None:
    if not tensors or (group != "DP" and ranks.tp_size() == 1):
        return
    session = state.require_initialized("a broadcast of parameters and buffers")
    _runtime.broadcast_tensors(
        state.internal_group_name(group), tensors, root, _may_join(), session.barriers.watch
    )


def _flags_group_name(group: str, parameters: Sequence[nn.Parameter]) -> str:
    """The group by which ranks agree who has gradients, where it is not the gradients' own.
    Collective over it."""
    if not any(parameter.is_cuda for parameter in parameters):
        return ""
    groups = state.require_initialized("the averaging of gradients").groups
    return str(groups.cpu_group(group).group_name)


def _may_join() -> bool:
    """True if ``DistributedModel.join`` is a way out of different numbers of batches."""
    return ranks.tp_size() == 1 and shard_plan() is None
