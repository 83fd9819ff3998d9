# SPDX-License-Identifier: Apache-2.0
"""Attention by PyTorch's ``scaled_dot_product_attention``, under the names of SMP v2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

HEADS_FIRST = "b h s d"
LAYOUTS = (HEADS_FIRST, "b s h d")


class _Attention(nn.Module):
    def __init__(
        self,
        attention_dropout_prob: float = 0.0,
        scale: float | None = None,
        triton_flash_attention: bool = False,
        use_alibi: bool = False,
    ) -> None:
        super().__init__()
        for name, asked in (
            ("triton_flash_attention", triton_flash_attention),
            ("use_alibi", use_alibi),
        ):
            if asked:
                raise NotImplementedError(
                    f"torch.sagemaker.nn.attn.{type(self).__name__}({name}=True) is not there"
                )
        self.attention_dropout_prob = attention_dropout_prob
        self.scale = scale

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        causal: bool,
        cast_dtype: torch.dtype | None,
        layout: str,
    ) -> torch.Tensor:
        if layout not in LAYOUTS:
            raise ValueError(f"layout is {layout!r}; expected one of {', '.join(LAYOUTS)}")
        turned = [one if layout == HEADS_FIRST else one.transpose(1, 2)
                  for one in (query, key, value)]  # fmt: skip
        queries, keys, values = (
            one if cast_dtype is None else one.to(cast_dtype) for one in turned
        )
        result = scaled_dot_product_attention(
            queries,
            keys,
            values,
            dropout_p=self.attention_dropout_prob if self.training else 0.0,
            is_causal=causal,
            scale=self.scale,
            enable_gqa=queries.shape[1] != keys.shape[1],
        ).to(query.dtype)
        return result if layout == HEADS_FIRST else result.transpose(1, 2)


class FlashSelfAttention(_Attention):
    """Self-attention of queries, keys and values with the same heads.

    >>> attention = FlashSelfAttention()
    >>> query = torch.ones(1, 2, 4, 8)  # a batch of 1, 2 heads, 4 positions
    >>> attention((query, query, query), causal=True).shape
    torch.Size([1, 2, 4, 8])
    """

    def forward(
        self,
        qkv: torch.Tensor | Sequence[torch.Tensor],
        attn_mask: Any = None,
        causal: bool = False,
        cast_dtype: torch.dtype | None = None,
        layout: str = HEADS_FIRST,
    ) -> torch.Tensor:
        """Result in the layout of the inputs.

        Args:
            qkv: query, key and value, or one tensor that has them one after the other in its
                dimension of heads.
            attn_mask: not there; raises NotImplementedError for anything but None.
        """
        if attn_mask is not None:
            raise NotImplementedError(
                "torch.sagemaker.nn.attn.FlashSelfAttention(attn_mask=...) is not there"
            )
        query, key, value = _parts(qkv, 3, layout)
        return self._attend(query, key, value, causal, cast_dtype, layout)


class FlashGroupedQueryAttention(_Attention):
    """Attention of queries with more heads than keys and values.

    >>> query, key = torch.ones(1, 4, 6, 8), torch.ones(1, 4, 2, 8)  # 6 and 2 heads
    >>> FlashGroupedQueryAttention()(query, (key, key)).shape
    torch.Size([1, 4, 6, 8])
    """

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor | Sequence[torch.Tensor],
        causal: bool = False,
        cast_dtype: torch.dtype | None = None,
        layout: str = "b s h d",
    ) -> torch.Tensor:
        """Result in the layout of the inputs; ``kv`` is key and value, or one tensor of both."""
        key, value = _parts(kv, 2, layout)
        return self._attend(q, key, value, causal, cast_dtype, layout)


def _parts(
    tensors: torch.Tensor | Sequence[torch.Tensor], count: int, layout: str
) -> Sequence[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return tensors.chunk(count, dim=1 if layout == HEADS_FIRST else 2)
    return tensors
