# SPDX-License-Identifier: Apache-2.0
"""Modules of the library, most of them split over tensor-parallel ranks.

In the order in which they build on each other, on ``_slices``: regions (where activations change
hands), initial_values; linear, embedding, normalization; the blocks of a transformer from
residual_block to lm_head.
"""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn import huggingface as huggingface
from smdistributed.modelparallel.torch.nn.attention_layer import DistributedAttentionLayer
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.embedding import DistributedEmbedding
from smdistributed.modelparallel.torch.nn.flash_attention import FlashAttentionLayer
from smdistributed.modelparallel.torch.nn.linear import DistributedLinear
from smdistributed.modelparallel.torch.nn.lm_head import DistributedTransformerLMHead
from smdistributed.modelparallel.torch.nn.normalization import FusedLayerNorm
from smdistributed.modelparallel.torch.nn.output_layer import DistributedTransformerOutputLayer
from smdistributed.modelparallel.torch.nn.transformer import DistributedTransformer
from smdistributed.modelparallel.torch.nn.transformer_layer import DistributedTransformerLayer

__all__ = [
    "DistributedAttentionLayer",
    "DistributedEmbedding",
    "DistributedLinear",
    "DistributedModule",
    "DistributedTransformer",
    "DistributedTransformerLMHead",
    "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer",
    "FlashAttentionLayer",
    "FusedLayerNorm",
    "huggingface",
]
