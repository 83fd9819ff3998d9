# SPDX-License-Identifier: Apache-2.0
"""Embeddings whose table is split over tensor-parallel ranks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch._slices.parameter_slices import (
    require_divisible,
    set_spread,
    slice_of,
    tp_size,
)
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.initial_values import drawn, normal_but_for


class DistributedEmbedding(DistributedModule):
    """``nn.Embedding``, split by ``embedding_dim``. ``[B, ..]`` -> ``[B, .., embedding_dim]``.

    Each rank looks the numbers of all ranks' batches up in its slice of the table,
    ``[num_embeddings, embedding_dim / t]``.

    Args:
        num_embeddings, embedding_dim, padding_idx, scale_grad_by_freq: as torch's.
        max_norm, norm_type: refused if set: the norm of a row would need all ranks at each lookup.
        sparse: refused: gradients of slices are averaged as dense ones.
        _weight: the whole table to begin with, in place of normal values.
        initializer_range: their standard deviation.
        _skip_allgather: the numbers are those of the whole group already, ``[tB, ..]``.
        _skip_scatter_and_merge: return this rank's slice for the whole group,
            ``[tB, .., embedding_dim / t]``.
    """

    divided_sizes = ("embedding_dim",)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: torch.Tensor | None = None,
        initializer_range: float = 0.02,
        _skip_allgather: bool = False,
        _skip_scatter_and_merge: bool = False,
    ) -> None:
        if max_norm is not None or sparse:
            raise SMPUnsupportedError(
                f"DistributedEmbedding: max_norm={max_norm}, sparse={sparse} are not available; "
                "leave both out"
            )
        require_divisible("DistributedEmbedding", embedding_dim=embedding_dim)
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._skip_allgather = _skip_allgather
        self._skip_scatter_and_merge = _skip_scatter_and_merge
        if _weight is None:
            fill = normal_but_for(padding_idx, initializer_range)
            self.weight = drawn(num_embeddings, embedding_dim, axis=1, fill=fill)
        else:
            self.weight = nn.Parameter(slice_of(_weight.detach(), 1).clone())
            set_spread(self.weight, 1)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        if tp_size() > 1 and not self._skip_allgather:
            gathered = regions.enter_constant(input, input.shape[0])
            assert gathered is not None
            input = gathered  # noqa: A001
        found = functional.embedding(
            input, self.weight, self.padding_idx, scale_grad_by_freq=self.scale_grad_by_freq
        )
        return found if self._skip_scatter_and_merge else regions.leave_sliced(found)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
