# SPDX-License-Identifier: Apache-2.0
"""Frame of the blocks of a transformer layer: norms, dropout, the residual."""

from __future__ import annotations

import torch

from smdistributed.modelparallel.torch._slices.parameter_slices import slices_activations
from smdistributed.modelparallel.torch._slices.random_streams import dropout
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.normalization import (
    RegionLayerNorm,
    RegionRMSNorm,
    region_norm,
)


class ResidualBlock(DistributedModule):
    """A layer norm, what the block computes, dropout, the residual, a layer norm.

    Either norm may be left out; not both, unless the residual is added elsewhere.
    """

    pre_layernorm: RegionLayerNorm | RegionRMSNorm | None
    layernorm: RegionLayerNorm | RegionRMSNorm | None

    def __init__(
        self,
        hidden_size: int,
        hidden_dropout_prob: float,
        *,
        pre_layernorm: bool,
        post_layernorm: bool,
        add_residual: bool,
        fp32_residual_addition: bool,
    ) -> None:
        if add_residual and not pre_layernorm and not post_layernorm:
            raise SMPValidationError(
                f"{type(self).__name__}: one of pre_layernorm and post_layernorm must be True"
            )
        super().__init__()
        self.hidden_size = hidden_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.add_residual, self.fp32_residual_addition = add_residual, fp32_residual_addition
        self._normed = (pre_layernorm, post_layernorm)

    def _add_norms(self, epsilon: float, normalization: str) -> None:
        """After the linear layers, as state dicts have them."""
        before, after = self._normed
        size = self.hidden_size
        self.pre_layernorm = region_norm(normalization, size, epsilon) if before else None
        self.layernorm = region_norm(normalization, size, epsilon) if after else None

    def _begun(self, hidden: torch.Tensor) -> torch.Tensor:
        """Input of the block's own computation."""
        return hidden if self.pre_layernorm is None else self.pre_layernorm(hidden)

    def _ended(self, output: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The block's result, of what it computed and its input."""
        own = slices_activations()
        output = dropout(output, self.hidden_dropout_prob, self.training, own=own)
        if self.add_residual:
            output = added(output, hidden, self.fp32_residual_addition)
        return output if self.layernorm is None else self.layernorm(output)


def added(output: torch.Tensor, residual: torch.Tensor, in_fp32: bool) -> torch.Tensor:
    """The sum, of the residual's type; made in 32 bits on request.

    >>> added(torch.ones(1), torch.ones(1), True)
    tensor([2.])
    """
    if not in_fp32:
        return output + residual
    return (output.float() + residual.float()).to(residual.dtype)
