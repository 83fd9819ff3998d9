# SPDX-License-Identifier: Apache-2.0
"""The attention block, its heads split over tensor-parallel ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from smdistributed import _runtime
from smdistributed.modelparallel.torch._recompute import recomputation
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    require_divisible,
    tp_rank,
    tp_size,
)
from smdistributed.modelparallel.torch._slices.random_streams import dropout
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.attention_scores import alibi_bias, hidden_keys, rotated
from smdistributed.modelparallel.torch.nn.linear import ColumnLinear, RowLinear
from smdistributed.modelparallel.torch.nn.normalization import head_norm
from smdistributed.modelparallel.torch.nn.residual_block import ResidualBlock
from smdistributed.modelparallel.torch.state_mod import state

Tensors = tuple[torch.Tensor | None, ...]


class DistributedAttentionLayer(ResidualBlock):
    """Self- or cross-attention, a linear layer, dropout, the residual, layer norms.

    ``forward((hidden, mask))``, or ``((hidden, cross_states, mask))`` with cross attention, returns
    one tensor like ``hidden``, ``[N, S, hidden_size]``. The mask is added to scores: it is
    ``[N, 1, 1, S]``, or goes with ``[N, heads of one rank, S, S]``, or is None. The residual is
    always added.

    With the setting ``checkpoint_attentions`` what lies between queries, keys and values and their
    context, which grows with the square of the sequence, is recomputed in backward: without
    communication, so that it costs only the products. (Korthikanti and others: Reducing Activation
    Recomputation in Large Transformer Models, 2022.)

    Args:
        num_attention_heads, attention_head_size, hidden_size: of the whole layer.
        num_key_value_heads: of keys and values, each for as many neighbouring queries' heads
            (grouped-query attention; 1: multi-query); as many as there are heads if None.
        attention_dropout_prob: of attention probabilities. hidden_dropout_prob: of what comes out.
        use_normal_initialization: weights are normal, with deviation ``initializer_range``, and
            biases zero; else as torch's.
        cross_attention: keys and values come from ``cross_states``.
        causal_mask_size: the longest sequence; not None: no query sees later keys, without cross
            attention. window_size: nor keys that are so far back.
        pre_layernorm, post_layernorm: before the queries; after the residual. One at least.
        scale_attention_scores: divide scores by the root of the head size.
        scale_attn_by_layer_idx: divide them by ``layer_idx + 1``, too.
        query_key_layer_scaling: the same before the product, undone in 32 bits before softmax, for
            the range of 16 bits. attention_in_fp32: scores in 32 bits from the start.
        use_qkv_bias, use_attn_dense_bias: which linear layers have biases.
        fused_qkv: queries, keys and values come from one linear layer, ``query_key_value``, whose
            rows are those of the first head, of the second and so on (GPT-NeoX).
        normalize_queries_keys: each head of queries and keys is normalized, by ``normalization``,
            before positions are (Qwen3).
        rotary_dim, rotary_emb_base, rotary_interleaved, rotary_frequencies: rotary positions, see
            ``rotated``.
        use_alibi, alibi_bias_max: see ``alibi_bias``.
        flash_attention: torch's fused attention where nothing above stands in its way.
        fused_softmax: mask and softmax in one kernel.
        normalization: as DistributedTransformerOutputLayer's.
        add_residual: False leaves it out (for blocks that add up several outputs).
        fp32_residual_addition: add the residual in 32 bits.
    """

    divided_sizes = ("num_attention_heads", "num_key_value_heads", "hidden_size")

    def __init__(
        self,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        cross_attention: bool = False,
        causal_mask_size: int | None = None,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        *,
        num_key_value_heads: int | None = None,
        window_size: int | None = None,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int = 0,
        query_key_layer_scaling: bool = False,
        attention_in_fp32: bool = False,
        use_qkv_bias: bool = True,
        use_attn_dense_bias: bool = True,
        fused_qkv: bool = False,
        normalize_queries_keys: bool = False,
        rotary_dim: int | None = None,
        rotary_emb_base: float = 10000.0,
        rotary_interleaved: bool = True,
        rotary_frequencies: Sequence[float] | None = None,
        use_alibi: bool = False,
        alibi_bias_max: float = 8,
        flash_attention: bool = False,
        fused_softmax: bool = True,
        normalization: str = "layernorm",
        add_residual: bool = True,
        fp32_residual_addition: bool = False,
    ) -> None:
        name = "DistributedAttentionLayer"
        shared = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        require_divisible(name, num_attention_heads=num_attention_heads, hidden_size=hidden_size)
        require_divisible(name, num_key_value_heads=shared)
        if num_attention_heads % shared:
            raise SMPValidationError(
                f"{name}: num_attention_heads {num_attention_heads} does not divide by "
                f"num_key_value_heads {shared}"
            )
        if fused_qkv and (cross_attention or shared != num_attention_heads):
            raise SMPValidationError(
                f"{name}: fused_qkv needs keys and values for each head, and no cross attention"
            )
        super().__init__(
            hidden_size,
            hidden_dropout_prob,
            pre_layernorm=pre_layernorm,
            post_layernorm=post_layernorm,
            add_residual=add_residual,
            fp32_residual_addition=fp32_residual_addition,
        )
        self.num_attention_heads, self.attention_head_size = (
            num_attention_heads,
            attention_head_size,
        )
        self.local_attention_heads = num_attention_heads // tp_size()
        self.num_key_value_heads = shared
        self.attention_dropout_prob = attention_dropout_prob
        self.cross_attention = cross_attention
        self.causal_mask_size = causal_mask_size
        self.window_size = window_size
        self.query_key_layer_scaling = query_key_layer_scaling
        self.attention_in_fp32 = attention_in_fp32
        self.rotary_dim = rotary_dim
        self.rotary_emb_base, self.rotary_interleaved = rotary_emb_base, rotary_interleaved
        self.rotary_frequencies = rotary_frequencies
        self.use_alibi, self.alibi_bias_max = use_alibi, alibi_bias_max
        self.flash_attention, self.fused_softmax = flash_attention, fused_softmax
        self.layer_idx = layer_idx
        self.scale = 1 / math.sqrt(attention_head_size) if scale_attention_scores else 1.0
        if scale_attn_by_layer_idx:
            self.scale /= layer_idx + 1
        deviation = initializer_range if use_normal_initialization else None
        inner, kept = num_attention_heads * attention_head_size, shared * attention_head_size
        self.query_key_value: ColumnLinear | None = None
        if fused_qkv:
            self.query_key_value = ColumnLinear(hidden_size, 3 * inner, use_qkv_bias, deviation)
        else:
            self.query = ColumnLinear(hidden_size, inner, use_qkv_bias, deviation)
            self.key = ColumnLinear(hidden_size, kept, use_qkv_bias, deviation)
            self.value = ColumnLinear(hidden_size, kept, use_qkv_bias, deviation)
        self.query_norm = self.key_norm = None
        if normalize_queries_keys:
            self.query_norm, self.key_norm = (
                head_norm(normalization, attention_head_size, layernorm_epsilon) for _ in range(2)
            )
        self.dense = RowLinear(inner, hidden_size, use_attn_dense_bias, deviation)
        self._add_norms(layernorm_epsilon, normalization)

    def forward(self, inputs: Tensors) -> torch.Tensor:
        between = ("cross_states",) if self.cross_attention else ()
        hidden, *more = self._unpacked(inputs, ("hidden_states", *between, "attention_mask"))
        hidden, mask = self._hidden(hidden, self.hidden_size), more[-1]
        cross = self._hidden(more[0], self.hidden_size) if self.cross_attention else None
        if self.enclosed:
            return self._attend(hidden, cross, mask)
        batch = hidden.shape[0]
        mask = regions.enter_constant(mask, batch)
        cross = None if cross is None else regions.enter(cross)
        return regions.leave(self._attend(regions.enter(hidden), cross, mask))

    def _attend(
        self, hidden: torch.Tensor, cross: torch.Tensor | None, mask: torch.Tensor | None
    ) -> torch.Tensor:
        whole = regions.to_columns(self._begun(hidden))
        source = whole if cross is None else regions.to_columns(cross)
        query, key, value = self._projected(whole, source)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary_dim is not None:
            how = (self.rotary_dim, self.rotary_emb_base, self.rotary_interleaved)
            turns = self.rotary_frequencies
            query, key = rotated(query, *how, turns), rotated(key, *how, turns)
        queries_each = self.num_attention_heads // self.num_key_value_heads
        if queries_each > 1:
            key = key.repeat_interleave(queries_each, dim=1)
            value = value.repeat_interleave(queries_each, dim=1)
        context = self._kept_context(query, key, value, mask)
        return self._ended(self.dense(context.transpose(1, 2).flatten(2)), hidden)

    def _projected(self, whole: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.query_key_value is not None:
            fused = self._by_heads(self.query_key_value(whole), 3 * self.attention_head_size)
            return fused.chunk(3, dim=-1)
        by_heads = (self.query(whole), self.key(source), self.value(source))
        return tuple(self._by_heads(one, self.attention_head_size) for one in by_heads)

    def _by_heads(self, tensor: torch.Tensor, size: int) -> torch.Tensor:
        return tensor.view(*tensor.shape[:-1], -1, size).transpose(1, 2)

    @property
    def _causal(self) -> bool:
        return self.causal_mask_size is not None and not self.cross_attention

    def _kept_context(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        if not state.cfg.checkpoint_attentions or recomputation.in_region():
            return self._context(query, key, value, mask)
        inputs = (query, key, value, mask)
        context: torch.Tensor = recomputation.run_region(
            [], self._context, inputs, {}, preserve_rng_state=True
        )
        return context

    def _context(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        queries, keys = query.shape[2], key.shape[2]
        if self._causal and self.causal_mask_size is not None and keys > self.causal_mask_size:
            raise SMPValidationError(
                f"DistributedAttentionLayer got a sequence of {keys}; causal_mask_size is "
                f"{self.causal_mask_size}"
            )
        bias = mask
        if self.use_alibi:
            heads, own = self.num_attention_heads, self.local_attention_heads
            alibi = alibi_bias(heads, tp_rank() * own, own, keys, self.alibi_bias_max, query)
            bias = alibi if bias is None else bias + alibi
        windowed = self._causal and self.window_size is not None
        drops = self.training and self.attention_dropout_prob > 0 and tp_size() > 1
        if (
            self.flash_attention
            and not windowed
            and not drops
            and (bias is None or not self._causal)
        ):
            return functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=None if bias is None else bias.to(query.dtype),
                dropout_p=self.attention_dropout_prob if self.training else 0.0,
                is_causal=self._causal,
                scale=self.scale,
            )
        probabilities = self._probabilities(query, key, bias, queries, keys)
        probabilities = dropout(probabilities, self.attention_dropout_prob, self.training, own=True)
        return torch.matmul(probabilities.to(value.dtype), value)

    def _probabilities(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        bias: torch.Tensor | None,
        queries: int,
        keys: int,
    ) -> torch.Tensor:
        if self.attention_in_fp32:
            query, key = query.float(), key.float()
        divisor = self.layer_idx + 1 if self.query_key_layer_scaling else 1
        scores = torch.matmul(query * (self.scale / divisor), key.transpose(-1, -2))
        if divisor != 1:
            scores = scores.float() * divisor
        if self.fused_softmax:
            if bias is not None:
                bias = bias.to(scores.dtype)
            return _runtime.masked_softmax(scores, bias, self._causal, self.window_size)
        if self._causal:
            hidden = hidden_keys(queries, keys, self.window_size, scores.device)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        if bias is not None:
            scores = scores + bias
        return functional.softmax(scores, dim=-1)
