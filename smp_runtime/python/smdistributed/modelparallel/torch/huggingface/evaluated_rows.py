# SPDX-License-Identifier: Apache-2.0
"""Evaluation over replicas of which the last batches are filled up with rows read before."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from smdistributed.modelparallel.torch._session import comm
from smdistributed.modelparallel.torch.huggingface.training_arguments import (
    replica_group,
    replica_index,
    replicas,
)


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
