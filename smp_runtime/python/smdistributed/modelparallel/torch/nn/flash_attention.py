# SPDX-License-Identifier: Apache-2.0
"""Attention by torch's fused kernels, which never hold the matrix of scores."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn.attention_scores import alibi_bias


class FlashAttentionLayer(nn.Module):
    """``[B, S, 3, heads, head_size]`` of query, key and value -> ``[B, heads, S, head_size]``.

    On any device: torch's ``scaled_dot_product_attention`` chooses the kernel.

    Args:
        attention_dropout_prob: of the attention probabilities; none with triton_flash_attention.
        attention_head_size: needed unless ``scale`` is given.
        scale_attention_scores: divide scores by the root of the head size.
        scale_attn_by_layer_idx: divide them by ``layer_idx + 1``, too.
        scale: in place of all of these.
        triton_flash_attention: take a mask, as v1 did with that kernel only.
        use_alibi: add a bias that falls with the distance; needs triton_flash_attention.
    """

    def __init__(
        self,
        attention_dropout_prob: float = 0.1,
        attention_head_size: int | None = None,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int | None = None,
        scale: float | None = None,
        triton_flash_attention: bool = False,
        use_alibi: bool = False,
    ) -> None:
        super().__init__()
        if scale is None:
            scale = 1.0
            if scale_attention_scores:
                if attention_head_size is None:
                    raise SMPValidationError(
                        "FlashAttentionLayer needs attention_head_size, or scale, to scale scores"
                    )
                scale /= math.sqrt(attention_head_size)
            if scale_attn_by_layer_idx:
                if layer_idx is None:
                    raise SMPValidationError(
                        "FlashAttentionLayer: scale_attn_by_layer_idx needs layer_idx"
                    )
                scale /= layer_idx + 1
        if use_alibi and not triton_flash_attention:
            raise SMPValidationError(
                "FlashAttentionLayer: use_alibi needs triton_flash_attention=True"
            )
        self.scale = scale
        self.use_alibi = use_alibi
        self.takes_mask = triton_flash_attention
        self.attention_dropout_prob = 0.0 if triton_flash_attention else attention_dropout_prob

    def forward(
        self, qkv: torch.Tensor, attn_mask: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        if qkv.dim() != 5 or qkv.shape[2] != 3:
            raise SMPValidationError(
                f"FlashAttentionLayer got shape {list(qkv.shape)}; expected "
                "[batch, sequence, 3, heads, head size]"
            )
        if attn_mask is not None and not self.takes_mask:
            raise SMPValidationError(
                "FlashAttentionLayer takes attn_mask with triton_flash_attention=True only"
            )
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        length = qkv.shape[1]
        bias = attn_mask
        if self.use_alibi:
            alibi = alibi_bias(query.shape[1], 0, query.shape[1], length, 8, query)
            bias = alibi if bias is None else bias + alibi
        if bias is not None and causal:
            future = torch.ones(length, length, dtype=torch.bool, device=qkv.device).triu(1)
            bias = torch.zeros_like(bias).expand(-1, -1, length, length) + bias
            bias = bias.masked_fill(future, torch.finfo(qkv.dtype).min)
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=bias,
            dropout_p=self.attention_dropout_prob if self.training else 0.0,
            is_causal=causal and bias is None,
            scale=self.scale,
        )
