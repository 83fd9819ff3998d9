# SPDX-License-Identifier: Apache-2.0
"""The block of two linear layers, split over tensor-parallel ranks between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

from smdistributed import _runtime
from smdistributed.modelparallel.torch._slices.parameter_slices import require_divisible
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.linear import ColumnLinear, RowLinear
from smdistributed.modelparallel.torch.nn.residual_block import ResidualBlock

_TANH = partial(functional.gelu, approximate="tanh")
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "gelu_new": _TANH,
    "gelu_fast": _TANH,
    "gelu_pytorch_tanh": _TANH,
    "silu": functional.silu,
}


class DistributedTransformerOutputLayer(ResidualBlock):
    """``hidden_size`` -> ``intermediate_size`` -> ``hidden_size``, dropout, residual, layer norms.

    ``forward(hidden)``, ``[N, S, hidden_size]``, returns the same shape. Sizes are of the whole
    layer.

    Args:
        activation: gelu, relu, silu; gelu_new, gelu_fast, gelu_pytorch_tanh: gelu by tanh.
        fused_bias_gelu: bias and activation in one kernel, for gelu.
        gated_output: what the first layer gives is multiplied by the activation of another one,
            ``gate`` (SwiGLU with silu), and is not activated itself. (Shazeer: GLU Variants
            Improve Transformer, 2020.)
        use_output_bias: whether the linear layers have biases.
        normalization: layernorm; rmsnorm; rmsnorm_from_one, whose weights are differences from 1.
        add_residual, fp32_residual_addition and all others: as DistributedAttentionLayer's.
    """

    divided_sizes = ("hidden_size", "intermediate_size")

    def __init__(
        self,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        fp32_residual_addition: bool = False,
        *,
        fused_bias_gelu: bool = False,
        gated_output: bool = False,
        use_output_bias: bool = True,
        normalization: str = "layernorm",
        add_residual: bool = True,
    ) -> None:
        name = "DistributedTransformerOutputLayer"
        require_divisible(name, hidden_size=hidden_size, intermediate_size=intermediate_size)
        if activation not in ACTIVATIONS:
            raise SMPValidationError(
                f'{name}: activation "{activation}" is none of {", ".join(ACTIVATIONS)}'
            )
        super().__init__(
            hidden_size,
            hidden_dropout_prob,
            pre_layernorm=pre_layernorm,
            post_layernorm=post_layernorm,
            add_residual=add_residual,
            fp32_residual_addition=fp32_residual_addition,
        )
        self.intermediate_size = intermediate_size
        self.activation = activation
        self.fused_bias_gelu = fused_bias_gelu
        deviation = initializer_range if use_normal_initialization else None
        bias = use_output_bias
        self.dense1 = ColumnLinear(hidden_size, intermediate_size, bias, deviation)
        self.gate: ColumnLinear | None = None
        if gated_output:
            self.gate = ColumnLinear(hidden_size, intermediate_size, bias, deviation)
        self.dense2 = RowLinear(intermediate_size, hidden_size, bias, deviation)
        self._add_norms(layernorm_epsilon, normalization)

    def forward(self, inputs: torch.Tensor | tuple[torch.Tensor]) -> torch.Tensor:
        hidden = self._hidden(self._unpacked(inputs, ("hidden_states",))[0], self.hidden_size)
        if self.enclosed:
            return self._transform(hidden)
        return regions.leave(self._transform(regions.enter(hidden)))

    def _activated(self, whole: torch.Tensor) -> torch.Tensor:
        if self.gate is not None:
            gated: torch.Tensor = self.dense1(whole)
            return ACTIVATIONS[self.activation](self.gate(whole)) * gated
        bias = self.dense1.bias
        is_gelu = self.activation.startswith("gelu")
        if not self.fused_bias_gelu or not is_gelu or bias is None:
            return ACTIVATIONS[self.activation](self.dense1(whole))
        approximate = "none" if self.activation == "gelu" else "tanh"
        return _runtime.bias_gelu(functional.linear(whole, self.dense1.weight), bias, approximate)

    def _transform(self, hidden: torch.Tensor) -> torch.Tensor:
        whole = regions.to_columns(self._begun(hidden))
        return self._ended(self.dense2(self._activated(whole)), hidden)
