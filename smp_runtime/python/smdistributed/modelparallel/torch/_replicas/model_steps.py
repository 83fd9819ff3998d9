# SPDX-License-Identifier: Apache-2.0
"""Tasks of a model around each step: buffers and shards before it, gradients and hooks after."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from smdistributed.modelparallel.torch._ranks.devices import computing_device
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state


class ModelSteps:
    """Tasks around steps of ``model``; step and engine call them, on the script's thread."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.hooks: OrderedDict[int, Callable[[Any, Any], None]] = OrderedDict()
        """``hook(model, optimizer)`` runs at the end of the next step, once."""

    def needed_ranks(self) -> list[int]:
        """Ranks without which no step of this rank ends: they have other partitions, slices or
        shards of this copy of the model."""
        groups = state.require_initialized("a step").groups
        needed = {*groups.ranks("PP"), *groups.ranks("TP")}
        if self._model.sharded is not None and self._model.sharded.plan.on_demand:
            needed.update(self._model.sharded.groups.ranks)
        return sorted(needed)

    def before(self) -> None:
        """Begins each step; the step calls it."""
        self._model.checks.before_step()
        join = self._model.replicas.join
        self._send_buffers(0 if join is None else join.begin_step(active=True))
        due = self._model.replicas.begin_step()
        if self._model.sharded is not None:
            self._model.sharded.begin_step(due)

    def _send_buffers(self, root: int) -> None:
        if self._model.training:
            self._model.replicas.send_buffers(self._model.local_buffers(), root)

    def shadow(self, root: int) -> None:
        """Takes part in a step of other replicas, of which ``root`` is one; for ``join``."""
        self._send_buffers(root)
        for parameter in self._model.local_parameters():
            parameter.grad = None
        self.after_backward(False)

    def after(self, backward_ran: bool, loss: torch.Tensor | None) -> None:
        """Ends each step; the step calls it. ``loss`` is for the live line."""
        self._model.checks.after_step(backward_ran)
        self.after_backward(backward_ran, loss)
        hooks, self.hooks = self.hooks, OrderedDict()
        for hook in hooks.values():
            hook(self._model, state.optimizer)

    def after_backward(self, backward_ran: bool, loss: torch.Tensor | None = None) -> None:
        """Averages gradients over the replicas where it is due, and the loss with them."""
        if self._model.replicas.join is not None:
            backward_ran = self._model.replicas.join.backward_ran(backward_ran)
        if not backward_ran:
            return
        due = self._model.replicas.count_backward()
        if self._model.sharded is not None:
            self._model.sharded.finish_step(due)
        elif due:
            self._model.replicas.average(self._model.local_parameters())
        if due:
            state.reports.averaged(loss, computing_device())
