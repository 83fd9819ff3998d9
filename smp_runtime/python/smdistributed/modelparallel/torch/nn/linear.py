# SPDX-License-Identifier: Apache-2.0
"""Linear layers whose weight is split over tensor-parallel ranks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch._slices.parameter_slices import (
    require_divisible,
    same_batches,
    slices_activations,
    tp_size,
)
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.initial_values import drawn, linear_bias, linear_weight


class DistributedLinear(DistributedModule):
    """``nn.Linear``, split by input channels.

    ``[B, .., in_features]`` -> ``[B, .., out_features]``.

    Each rank gives slices of its batch to the others, multiplies the slices that it gets by its
    slice of the weight, ``[out_features, in_features / t]``, and gets the sums for its batch back.
    The bias is whole on every rank. Batches are of the same size on all ranks of the group.
    """

    divided_sizes = ("in_features",)

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        require_divisible("DistributedLinear", in_features=in_features)
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = drawn(
            out_features, in_features, axis=1, fill=linear_weight(in_features, None)
        )
        self.bias: nn.Parameter | None = None
        if bias:
            # The bias is added to this rank's own batch only.
            fill = linear_bias(in_features, None)
            self.bias = drawn(out_features, axis=None, fill=fill, scaled_batch=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        if input.shape[-1] != self.in_features or (input.dim() < 2 and not same_batches()):
            raise SMPValidationError(
                f"DistributedLinear got a tensor of shape {list(input.shape)}; expected "
                f"[batch, .., {self.in_features}]"
            )
        if tp_size() == 1:
            return functional.linear(input, self.weight, self.bias)
        output = regions.leave_summed(functional.linear(regions.enter_sliced(input), self.weight))
        return output if self.bias is None else output + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class ColumnLinear(nn.Module):
    """The first of a pair in a region: split by output, weight ``[out / t, in]``."""

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, deviation: float | None = None
    ) -> None:
        super().__init__()
        self.weight = drawn(outputs, inputs, axis=0, fill=linear_weight(inputs, deviation))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = drawn(outputs, axis=0, fill=linear_bias(inputs, deviation))

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        """``[.., in]``, after ``regions.to_columns`` -> ``[.., out / t]``."""
        return functional.linear(input, self.weight, self.bias)


class RowLinear(nn.Module):
    """The second of a pair: split by input, weight ``[out, in / t]``.

    The bias lies as hidden states do: whole, or sliced with ``optimize: memory``.
    """

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, deviation: float | None = None
    ) -> None:
        super().__init__()
        self.weight = drawn(outputs, inputs, axis=1, fill=linear_weight(inputs, deviation))
        self.bias: nn.Parameter | None = None
        if bias:
            axis = 0 if slices_activations() else None
            self.bias = drawn(outputs, axis=axis, fill=linear_bias(inputs, deviation))

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        """``[.., in / t]`` -> hidden states as they lie in a region."""
        output = regions.from_rows(functional.linear(input, self.weight))
        return output if self.bias is None else output + self.bias
