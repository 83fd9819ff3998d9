# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation, of whole and of sliced hidden states."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch._slices.parameter_slices import require_divisible
from smdistributed.modelparallel.torch._slices.tensor_group import exchange, slices_activations
from smdistributed.modelparallel.torch.nn.initial_values import constant


class FusedLayerNorm(nn.LayerNorm):
    """Layer normalisation under the name by which scripts tell it from other modules.

    >>> FusedLayerNorm(4).eps
    1e-05
    """


class RegionLayerNorm(FusedLayerNorm):
    """Layer normalisation over hidden states as they lie in a region of distributed layers."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__(hidden_size, eps=eps, elementwise_affine=False)
        self.elementwise_affine = True
        self._sliced = slices_activations()
        axis = 0 if self._sliced else None
        if self._sliced:
            require_divisible("RegionLayerNorm", hidden_size=hidden_size)
        self.weight = constant(hidden_size, 1, axis)
        self.bias = constant(hidden_size, 0, axis)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        if not self._sliced:
            return functional.layer_norm(
                input, self.normalized_shape, self.weight, self.bias, self.eps
            )
        return exchange().layer_norm(input, self.weight, self.bias, self.eps)
