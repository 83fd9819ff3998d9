# SPDX-License-Identifier: Apache-2.0
"""Replicas with different numbers of batches: those that are through accompany the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPStepError
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
def joined(model: Model, divide_by_all: bool, throw: bool) -> Iterator[None]:
    """Steps inside may be of different numbers on different replicas."""
    join = model.replicas.join = Join(model, divide_by_all, throw)
    try:
        yield
        join.finish()
    finally:
        model.replicas.join = None
