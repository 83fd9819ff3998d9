# SPDX-License-Identifier: Apache-2.0
"""A language model: embeddings, distributed transformer, head."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.nn.attention_layer import Tensors
from smdistributed.modelparallel.torch.nn.distributed_module import (
    DistributedModule,
    with_options_of,
)
from smdistributed.modelparallel.torch.nn.initial_values import drawn, linear_bias, normal
from smdistributed.modelparallel.torch.nn.layer_norm import FusedLayerNorm
from smdistributed.modelparallel.torch.nn.transformer import DistributedTransformer

MASKED = -10000.0
"""Added to the scores of masked positions."""


@with_options_of(DistributedTransformer)
class DistributedTransformerLMHead(DistributedModule):
    """Word, position and token-type embeddings, a DistributedTransformer, and a language-model head
    without bias, tied to the word embeddings.

    ``forward((input_ids, attention_mask, token_type_ids, position_ids, labels))``; with cross
    attention ``cross_states, cross_mask`` stand before the labels. All but the first may be None
    or, at the end, left out. ``input_ids`` is ``[N, S]``, masks are 0-1 ``[N, S]``, **1 for masked
    positions**. Returns logits ``[N, S, vocab_size]``; with labels ``(loss, logits)``; without a
    head hidden states. Labels of -100 do not count; with a causal mask each position is compared
    with the label after it.

    Submodules: ``word_embedding``, ``position_embedding``, ``token_type_embedding`` (if any),
    ``layernorm`` (on the embeddings with post_layernorm, as BERT's; else after the transformer, as
    GPT-2's), ``transformer``, ``lm_head``. All but the transformer are whole on each rank.

    Args:
        num_positions: 0 for no position embeddings (rotary ones, ALiBi).
        num_token_types: 0 for no token-type embeddings.
        add_lm_head: False returns hidden states.
        tie_input_output_embedding, use_lm_head_bias: of the head (GPT-J: False, True).
        embedding_dropout_prob: of the embeddings; hidden_dropout_prob if None.
        Others: as DistributedTransformer's.
    """

    divided_sizes = (
        "num_attention_heads",
        "hidden_size",
        "intermediate_size",
    )

    def __init__(
        self,
        num_layers: int = 12,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        vocab_size: int = 30522,
        num_positions: int = 1024,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        num_token_types: int = 0,
        causal_mask_size: int | None = None,
        add_cross_attention: bool = False,
        add_lm_head: bool = True,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        *,
        tie_input_output_embedding: bool = True,
        use_lm_head_bias: bool = False,
        embedding_dropout_prob: float | None = None,
        distribute_embedding: bool = False,
        **transformer_options: Any,
    ) -> None:
        if distribute_embedding:
            raise SMPUnsupportedError(
                "DistributedTransformerLMHead: distribute_embedding=True is not available yet"
            )
        super().__init__()
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.causal_mask_size = causal_mask_size
        self.add_cross_attention, self.add_lm_head = add_cross_attention, add_lm_head
        self.transformer = DistributedTransformer(
            num_layers,
            num_attention_heads,
            attention_head_size,
            hidden_size,
            intermediate_size,
            attention_dropout_prob,
            hidden_dropout_prob,
            activation,
            layernorm_epsilon,
            initializer_range,
            use_normal_initialization,
            causal_mask_size,
            add_cross_attention,
            pre_layernorm,
            post_layernorm,
            **transformer_options,
        )
        self.word_embedding = _embedding(vocab_size, hidden_size, initializer_range)
        self.position_embedding = (
            _embedding(num_positions, hidden_size, initializer_range) if num_positions else None
        )
        self.token_type_embedding = (
            _embedding(num_token_types, hidden_size, initializer_range) if num_token_types else None
        )
        self.layernorm = FusedLayerNorm(hidden_size, eps=layernorm_epsilon)
        self._norm_first = post_layernorm
        self.dropout = nn.Dropout(
            hidden_dropout_prob if embedding_dropout_prob is None else embedding_dropout_prob
        )
        self.lm_head: nn.Linear | None = None
        if add_lm_head:
            self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False, device="meta")
            self.lm_head.weight = self.word_embedding.weight
            if not tie_input_output_embedding:
                shape, fill = (vocab_size, hidden_size), normal(initializer_range)
                self.lm_head.weight = drawn(*shape, axis=None, fill=fill, scaled_batch=False)
            if use_lm_head_bias:
                fill = linear_bias(hidden_size, initializer_range)
                self.lm_head.bias = drawn(vocab_size, axis=None, fill=fill, scaled_batch=False)

    def forward(self, inputs: Tensors) -> Any:
        names = ["input_ids", "attention_mask", "token_type_ids", "position_ids"]
        if self.add_cross_attention:
            names += ["cross_states", "cross_mask"]
        given = self._unpacked(inputs, (*names, "labels"))
        ids, mask, types, positions = given[:4]
        assert ids is not None
        labels = given[-1]
        hidden = self._embedded(ids, types, positions)
        packed: Tensors = (hidden, _additive(mask, hidden))
        if self.add_cross_attention:
            packed = (hidden, given[4], packed[1], _additive(given[5], hidden))
        hidden = self.transformer(packed)[0]
        if not self._norm_first:
            hidden = self.layernorm(hidden)
        if self.lm_head is None:
            return hidden
        logits = self.lm_head(hidden)
        return logits if labels is None else (self._loss(logits, labels), logits)

    def _embedded(
        self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor | None
    ) -> torch.Tensor:
        hidden: torch.Tensor = self.word_embedding(ids)
        if self.position_embedding is not None:
            if positions is None:
                positions = torch.arange(ids.shape[1], device=ids.device)[None, :]
            hidden = hidden + self.position_embedding(positions)
        if self.token_type_embedding is not None and types is not None:
            hidden = hidden + self.token_type_embedding(types)
        if self._norm_first:
            hidden = self.layernorm(hidden)
        dropped: torch.Tensor = self.dropout(hidden)
        return dropped

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.causal_mask_size is not None:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return functional.cross_entropy(logits.reshape(-1, self.vocab_size), labels.reshape(-1))


def _embedding(rows: int, size: int, deviation: float) -> nn.Embedding:
    embedding = nn.Embedding(rows, size, device="meta")
    embedding.weight = drawn(rows, size, axis=None, fill=normal(deviation), scaled_batch=False)
    return embedding


def _additive(mask: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """``[N, S]`` of 0 and 1 for masked -> ``[N, 1, 1, S]`` to add to scores."""
    if mask is None or mask.dim() == 4:
        return mask
    return (mask.to(like.dtype) * MASKED)[:, None, None, :]
