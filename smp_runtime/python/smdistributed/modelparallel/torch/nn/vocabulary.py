# SPDX-License-Identifier: Apache-2.0
"""Word embedding and language-model head, split over tensor-parallel ranks by words."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch._slices.tensor_group import exchange, tp_rank, tp_size
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.initial_values import drawn, normal

IGNORED = -100


class VocabularyEmbedding(DistributedModule):
    """``[B, S]`` of words -> ``[B, S, size]``. The table is ``[words / t, size]`` on each rank.

    ``padding_idx``: the word whose row gets no gradient from here."""

    def __init__(
        self, words: int, size: int, deviation: float, padding_idx: int | None = None
    ) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        self.weight = drawn(words, size, axis=0, fill=normal(deviation))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        everybodys = regions.enter_constant(ids, ids.shape[0])
        assert everybodys is not None
        own = self.weight.shape[0]
        place = everybodys - tp_rank() * own
        mine = (place >= 0) & (place < own)
        # Others' words count zero here, and the sum over ranks has each word once.
        found = functional.embedding(place.masked_fill(~mine, 0), self.weight)
        if self.padding_idx is not None:
            padding = (everybodys == self.padding_idx)[..., None]
            found = torch.where(padding, found.detach(), found)
        return regions.leave_summed(found * mine[..., None])


class VocabularyHead(DistributedModule):
    """Scores of words, ``weight`` ``[words / t, size]`` and ``bias`` ``[words / t]`` or None."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[B, S, size]`` -> ``[tB, S, words / t]``."""
        return functional.linear(regions.enter_vocabulary(hidden), self.weight, self.bias)


def mean_loss(logits: torch.Tensor, labels: torch.Tensor, items: Any = None) -> torch.Tensor:
    """The mean cross entropy of this rank's own batch: of logits ``[tB, S, words / t]`` with labels
    ``[B, S]``, those of ``IGNORED`` left out. With ``items`` the sum, divided by it."""
    count = (labels != IGNORED).sum() if items is None else items
    if tp_size() == 1:
        rows, targets = logits.flatten(0, 1), labels.flatten()
        return functional.cross_entropy(rows, targets, reduction="sum") / count
    everybodys = regions.enter_constant(labels, labels.shape[0])
    assert everybodys is not None
    rows, targets = logits.flatten(0, 1), everybodys.flatten()
    losses = exchange().vocabulary_loss(rows, targets, IGNORED).view(everybodys.shape)
    return regions.leave_whole(losses).sum() / count
