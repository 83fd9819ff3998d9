# SPDX-License-Identifier: Apache-2.0
"""Normalizations of a transformer: by mean and variance, or by the root mean square; of whole and
of sliced hidden states."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch._slices.parameter_slices import (
    exchange,
    require_divisible,
    slices_activations,
)
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import regions
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


#: Values of the argument ``normalization``; of the last, weights are differences from 1 (Gemma).
NORMALIZATIONS = ("layernorm", "rmsnorm", "rmsnorm_from_one")


class RMSNorm(nn.Module):
    """``[.., H]`` divided by its root mean square over ``H``, times ``weight`` ``[H]``; made in 32
    bits where it is of 16. (Zhang, Sennrich: Root Mean Square Layer Normalization, 2019.)

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0])).tolist()
    [0.8485281467437744, 1.1313709020614624]
    """

    def __init__(self, hidden_size: int, eps: float, *, from_one: bool = False) -> None:
        super().__init__()
        self.hidden_size, self.eps, self.from_one = hidden_size, eps, from_one
        self.weight = nn.Parameter(torch.full((hidden_size,), 0.0 if from_one else 1.0))

    def reset_parameters(self) -> None:
        """First values, as those of torch's layers."""
        nn.init.constant_(self.weight, 0.0 if self.from_one else 1.0)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        wide = hidden if hidden.dtype == torch.float64 else hidden.float()
        squares = self._summed(wide.square().sum(dim=-1, keepdim=True))
        normal = wide * torch.rsqrt(squares / self.hidden_size + self.eps)
        weight = self._everybodys(self.weight)
        if self.from_one:
            return (normal * (1.0 + weight.to(wide.dtype))).to(hidden.dtype)
        return normal.to(hidden.dtype) * weight

    def _summed(self, squares: torch.Tensor) -> torch.Tensor:
        return squares

    def _everybodys(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}"


class RegionRMSNorm(RMSNorm):
    """The same over hidden states as they lie in a region of distributed layers."""

    def __init__(self, hidden_size: int, eps: float, *, from_one: bool = False) -> None:
        super().__init__(hidden_size, eps, from_one=from_one)
        self._sliced = slices_activations()
        if self._sliced:
            require_divisible("RegionRMSNorm", hidden_size=hidden_size)
        axis = 0 if self._sliced else None
        self.weight = constant(hidden_size, 0.0 if from_one else 1.0, axis)

    def _summed(self, squares: torch.Tensor) -> torch.Tensor:
        return regions.sum_of_slices(squares) if self._sliced else squares


class HeadRMSNorm(RMSNorm):
    """The same over each head, ``[.., head_size]``, of queries or keys: every rank has some, and
    all have the one weight."""

    def __init__(self, head_size: int, eps: float, *, from_one: bool = False) -> None:
        super().__init__(head_size, eps, from_one=from_one)
        self.weight = constant(head_size, 0.0 if from_one else 1.0)

    def _everybodys(self, weight: torch.Tensor) -> torch.Tensor:
        return regions.used_in_parts(weight)


def region_norm(kind: str, hidden_size: int, eps: float) -> RegionLayerNorm | RegionRMSNorm:
    """Inside a region of distributed layers. Raises SMPValidationError for an unknown ``kind``."""
    _check(kind)
    if kind == "layernorm":
        return RegionLayerNorm(hidden_size, eps)
    return RegionRMSNorm(hidden_size, eps, from_one=kind == "rmsnorm_from_one")


def whole_norm(kind: str, hidden_size: int, eps: float) -> FusedLayerNorm | RMSNorm:
    """Norm over each rank's own batch."""
    _check(kind)
    if kind == "layernorm":
        return FusedLayerNorm(hidden_size, eps=eps)
    return RMSNorm(hidden_size, eps, from_one=kind == "rmsnorm_from_one")


def head_norm(kind: str, head_size: int, eps: float) -> HeadRMSNorm:
    """Norm of heads of queries or keys. Raises SMPValidationError for one by mean and variance."""
    _check(kind)
    if kind == "layernorm":
        raise SMPValidationError("heads are normalized by rmsnorm or rmsnorm_from_one")
    return HeadRMSNorm(head_size, eps, from_one=kind == "rmsnorm_from_one")


def _check(kind: str) -> None:
    if kind not in NORMALIZATIONS:
        raise SMPValidationError(f'normalization "{kind}" is none of {", ".join(NORMALIZATIONS)}')
