# SPDX-License-Identifier: Apache-2.0
"""One batch of the Trainer as a step of the library, in microbatches. The last batches of an
evaluation are filled up with rows read before, which do not count."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from smdistributed.modelparallel.torch._pipeline.step_output import StepOutput
from smdistributed.modelparallel.torch._ranks import comm
from smdistributed.modelparallel.torch.huggingface.training_arguments import (
    replica_group,
    replica_index,
    replicas,
)
from smdistributed.modelparallel.torch.state_mod import holding, state
from smdistributed.modelparallel.torch.step import step


class TrainerSteps:
    """The two steps of ``trainer``, whose ``compute_loss`` they call, a script's own included."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._train: Callable[..., Any] = step(non_split_inputs=("items",))(self._train_microbatch)
        self._predict: Callable[..., Any] = step(non_split_inputs=("items", "ignored"))(
            self._predict_microbatch
        )

    def train(self, model: Any, inputs: Any, items: Any) -> torch.Tensor:
        """Forward and backward of a batch; the loss of this replica, a scalar.

        ``items`` is by what losses are divided that are sums, or None.
        """
        with microbatches_that_divide(inputs):
            loss: torch.Tensor = self._train(model, inputs, items).reduce_mean()
        return loss.detach()

    def predict(
        self, model: Any, inputs: Any, items: Any, ignored: Sequence[str], with_loss: bool
    ) -> tuple[torch.Tensor | None, Any]:
        """Forward of a batch: the loss, a scalar, if there is one, and a tuple of the outputs whose
        names are not ``ignored``."""
        with microbatches_that_divide(inputs), torch.no_grad():
            loss, outputs = self._predict(model, inputs, items, list(ignored), with_loss)
        return None if loss is None else loss.reduce_mean().detach(), _joined(outputs)

    def _train_microbatch(self, model: Any, inputs: Any, items: Any) -> Any:
        trainer = self._trainer
        with self._precision():
            loss = trainer.compute_loss(model, inputs, num_items_in_batch=_of_microbatch(items))
        if not self._is_sum(items):
            loss = loss / trainer.current_gradient_accumulation_steps
        model.backward(loss)
        return loss

    def _predict_microbatch(
        self, model: Any, inputs: Any, items: Any, ignored: Sequence[str], with_loss: bool
    ) -> Any:
        if not with_loss:
            with self._precision():
                outputs = model(**inputs)
            return None, _chosen(outputs, ignored, 0)
        with self._precision():
            loss, outputs = self._trainer.compute_loss(
                model, inputs, return_outputs=True, num_items_in_batch=_of_microbatch(items)
            )
        return loss.mean(), _chosen(outputs, [*ignored, "loss"], 1)

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        with self._trainer.compute_loss_context_manager(), self._trainer.accelerator.autocast():
            yield

    def _is_sum(self, items: Any) -> bool:
        """True if losses are sums divided by the items of the whole batch, of all microbatches and
        all batches until the update, not means."""
        trainer = self._trainer
        said: bool | None = getattr(trainer, "loss_is_scaled_for_ga", None)
        if said is not None:
            return said
        if trainer.compute_loss_func is not None:
            return True
        return items is not None and bool(trainer.model_accepts_loss_kwargs)


def _of_microbatch(items: Any) -> Any:
    """Sums over microbatches that are divided by it have the mean that the step takes."""
    return None if items is None else items / state.cfg.microbatches


def microbatches_that_divide(inputs: Any) -> contextlib.AbstractContextManager[None]:
    """Inside, steps have as many microbatches as divide the batch: the last one may be smaller.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"microbatches": 4})
    >>> with microbatches_that_divide({"x": torch.zeros(6, 2)}):
    ...     smp.state.cfg.microbatches
    2
    >>> smp.shutdown()
    """
    sizes = [leaf.shape[0] for leaf in tree_leaves(dict(inputs))
             if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]  # fmt: skip
    return holding(state.cfg, microbatches=math.gcd(state.cfg.microbatches, *sizes))


def _chosen(outputs: Any, ignored: Sequence[str], first: int) -> Any:
    if isinstance(outputs, dict):
        return tuple(value for key, value in outputs.items() if key not in ignored)
    return outputs[first:] if isinstance(outputs, tuple) else outputs


def _joined(outputs: Any) -> Any:
    """The outputs of all microbatches along the batch."""
    return tree_map_only(StepOutput, lambda one: one.concat().detach(), outputs)


class EvaluatedRows:
    """Rows of this replica's batch that count, of the ``size`` that it has.

    ``remainder`` is the number of rows in the last batch of all replicas that were not read before;
    0 or less where none were.
    """

    def __init__(self, inputs: Any, *, is_last: bool, remainder: int) -> None:
        sizes = [leaf.shape[0] for leaf in tree_leaves(dict(inputs))
                 if isinstance(leaf, torch.Tensor) and leaf.dim() > 0]  # fmt: skip
        self.size = sizes[0] if sizes else 0
        self.count = self.size
        if is_last and remainder > 0 and replicas() > 1:
            self.count = min(max(remainder - replica_index() * self.size, 0), self.size)

    def of(self, inputs: Any) -> Any:
        """The rows that count; all where none do, for all ranks compute together."""
        if self.count in (0, self.size):
            return inputs
        return tree_map_only(
            torch.Tensor, lambda one: one[: self.count] if self._has_rows(one) else one, inputs
        )

    def counted(self, inputs: Any) -> Any:
        """Inputs by which items are counted: no labels where no row counts."""
        if self.count or "labels" not in inputs:
            return inputs
        return {**inputs, "labels": torch.full_like(inputs["labels"], -100)}

    def filled_up(self, outputs: Any) -> Any:
        """Outputs of the rows that count, with as many rows as on the other replicas."""
        if self.count in (0, self.size):
            return outputs
        missing = self.size - self.count

        def filled(one: torch.Tensor) -> torch.Tensor:
            if one.dim() == 0 or one.shape[0] != self.count:
                return one
            return torch.cat([one, one[-1:].expand(missing, *one.shape[1:])])

        return tree_map_only(torch.Tensor, filled, outputs)

    def mean_loss(self, loss: torch.Tensor, items: Any) -> torch.Tensor:
        """The loss of the batch of all replicas, from the means over the ``items`` of each, or over
        its rows if None. Collective over them."""
        if replicas() == 1:
            return loss
        weight = self.count if items is None else float(items)
        parts = comm.allgather((float(loss), weight), replica_group())
        counted = [(value, weight) for value, weight in parts if weight]
        total = sum(value * weight for value, weight in counted)
        return torch.full_like(loss, total / max(sum(weight for _, weight in counted), 1))

    def _has_rows(self, tensor: torch.Tensor) -> bool:
        return tensor.dim() > 0 and tensor.shape[0] == self.size
