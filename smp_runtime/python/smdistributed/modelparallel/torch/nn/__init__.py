# SPDX-License-Identifier: Apache-2.0
"""Modules of the library. Those that are split over ranks are not there yet."""

from __future__ import annotations

from torch import nn

from smdistributed.modelparallel.torch.nn import huggingface as huggingface
from smdistributed.modelparallel.torch.not_yet import unavailable_class


class FusedLayerNorm(nn.LayerNorm):
    """Layer normalisation under the name by which scripts tell it from other modules.

    >>> FusedLayerNorm(4).eps
    1e-05
    """


def _distributed(name: str) -> type[nn.Module]:
    return unavailable_class(name, "tensor parallelism", nn.Module)


DistributedLinear = _distributed("DistributedLinear")
DistributedEmbedding = _distributed("DistributedEmbedding")
DistributedTransformerLMHead = _distributed("DistributedTransformerLMHead")
DistributedTransformer = _distributed("DistributedTransformer")
DistributedTransformerLayer = _distributed("DistributedTransformerLayer")
DistributedAttentionLayer = _distributed("DistributedAttentionLayer")
DistributedTransformerOutputLayer = _distributed("DistributedTransformerOutputLayer")
FlashAttentionLayer = unavailable_class("FlashAttentionLayer", "flash attention", nn.Module)
