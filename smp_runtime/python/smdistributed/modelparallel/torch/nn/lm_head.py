# SPDX-License-Identifier: Apache-2.0
"""A language model: embeddings, distributed transformer, head. Both may be split by words."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch._slices.parameter_slices import (
    exchange,
    require_divisible,
    same_batches,
    tp_rank,
    tp_size,
)
from smdistributed.modelparallel.torch._slices.random_streams import dropout
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.attention_layer import Tensors
from smdistributed.modelparallel.torch.nn.distributed_module import (
    DistributedModule,
    with_options_of,
)
from smdistributed.modelparallel.torch.nn.initial_values import (
    drawn,
    linear_bias,
    normal,
    normal_but_for,
)
from smdistributed.modelparallel.torch.nn.normalization import whole_norm
from smdistributed.modelparallel.torch.nn.transformer import DistributedTransformer

IGNORED = -100


class VocabularyEmbedding(DistributedModule):
    """``[B, S]`` of words -> ``[B, S, size]``. The table is ``[words / t, size]`` on each rank.

    ``padding_idx``: the word whose row gets no gradient from here."""

    def __init__(
        self, words: int, size: int, deviation: float, padding_idx: int | None = None
    ) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        self.weight = drawn(words, size, axis=0, fill=normal_but_for(padding_idx, deviation))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        everybodys = regions.enter_constant(ids, ids.shape[0])
        assert everybodys is not None
        own = self.weight.shape[0]
        place = everybodys - tp_rank() * own
        mine = (place >= 0) & (place < own)
        # Others' words count zero here, and the sum over ranks has each word once.
        found = functional.embedding(place.masked_fill(~mine, 0), self.weight)
        if self.padding_idx is not None:
            padding = (everybodys == self.padding_idx)[..., None]
            found = torch.where(padding, found.detach(), found)
        return regions.leave_summed(found * mine[..., None])


class VocabularyHead(DistributedModule):
    """Scores of words, ``weight`` ``[words / t, size]`` and ``bias`` ``[words / t]`` or None."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[B, S, size]`` -> ``[tB, S, words / t]``."""
        return functional.linear(regions.enter_vocabulary(hidden), self.weight, self.bias)


def mean_loss(logits: torch.Tensor, labels: torch.Tensor, items: Any = None) -> torch.Tensor:
    """The mean cross entropy of this rank's own batch: of logits ``[tB, S, words / t]`` with labels
    ``[B, S]``, those of ``IGNORED`` left out. With ``items`` the sum, divided by it."""
    count = (labels != IGNORED).sum() if items is None else items
    if tp_size() == 1:
        rows, targets = logits.flatten(0, 1), labels.flatten()
        return functional.cross_entropy(rows, targets, reduction="sum") / count
    everybodys = regions.enter_constant(labels, labels.shape[0])
    assert everybodys is not None
    rows, targets = logits.flatten(0, 1), everybodys.flatten()
    losses = exchange().vocabulary_loss(rows, targets, IGNORED).view(everybodys.shape)
    return regions.leave_whole(losses).sum() / count


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
    with the label after it. With ``num_items_in_batch`` the loss is their sum divided by it, not
    their mean.

    Submodules: ``word_embedding``, ``position_embedding``, ``token_type_embedding`` (if any),
    ``layernorm`` (on the embeddings with post_layernorm, as BERT's; else after the transformer, as
    GPT-2's), ``transformer``, ``lm_head``. All but the transformer are whole on each rank, unless
    ``distribute_embedding`` says otherwise.

    Args:
        num_positions: 0 for no position embeddings (rotary ones, ALiBi).
        num_token_types: 0 for no token-type embeddings.
        add_lm_head: False returns hidden states.
        tie_input_output_embedding, use_lm_head_bias: of the head (GPT-J: False, True).
        embedding_dropout_prob: of the embeddings; hidden_dropout_prob if None.
        embedding_scale: word embeddings are multiplied by it (Gemma).
        padding_idx: the word whose embedding is not trained; what a tied head learns of it is.
        distribute_embedding: split word embedding and head by words. The loss is then made without
            gathering logits, and what is returned beside it are those of this rank's words,
            ``[N, S, vocab_size / t]``.
        Others: as DistributedTransformer's.
    """

    divided_sizes = DistributedTransformer.divided_sizes
    transformer_class: ClassVar[type[DistributedTransformer]] = DistributedTransformer

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
        embedding_scale: float = 1.0,
        padding_idx: int | None = None,
        distribute_embedding: bool = False,
        normalization: str = "layernorm",
        **transformer_options: Any,
    ) -> None:
        if distribute_embedding:
            require_divisible("distribute_embedding of a language model", vocab_size=vocab_size)
        super().__init__()
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.causal_mask_size = causal_mask_size
        self.add_cross_attention, self.add_lm_head = add_cross_attention, add_lm_head
        self.transformer = self.transformer_class(
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
            normalization=normalization,
            **transformer_options,
        )
        self.distribute_embedding = distribute_embedding
        self.word_embedding: nn.Module = (
            VocabularyEmbedding(vocab_size, hidden_size, initializer_range, padding_idx)
            if distribute_embedding
            else _embedding(vocab_size, hidden_size, initializer_range, padding_idx)
        )
        self.position_embedding = (
            _embedding(num_positions, hidden_size, initializer_range) if num_positions else None
        )
        self.token_type_embedding = (
            _embedding(num_token_types, hidden_size, initializer_range) if num_token_types else None
        )
        self.embedding_scale = embedding_scale
        self.layernorm = whole_norm(normalization, hidden_size, layernorm_epsilon)
        self._norm_first = post_layernorm
        self.dropout = nn.Dropout(
            hidden_dropout_prob if embedding_dropout_prob is None else embedding_dropout_prob
        )
        self.lm_head: nn.Module | None = None
        if add_lm_head:
            self.lm_head = self._head(
                tie_input_output_embedding, use_lm_head_bias, initializer_range
            )

    def _head(self, tied: bool, with_bias: bool, deviation: float) -> nn.Module:
        words, size, split = self.vocab_size, self.hidden_size, self.distribute_embedding
        axis = 0 if split else None
        weight = self.word_embedding.weight
        if not tied:
            weight = drawn(words, size, axis=axis, fill=normal(deviation), scaled_batch=split)
        assert isinstance(weight, nn.Parameter)
        bias = None
        if with_bias:
            fill = linear_bias(size, deviation)
            bias = drawn(words, axis=axis, fill=fill, scaled_batch=split)
        if split:
            return VocabularyHead(weight, bias)
        head = nn.Linear(size, words, bias=False, device="meta")
        head.weight = weight
        if bias is not None:
            head.bias = bias
        return head

    def forward(self, inputs: Tensors, num_items_in_batch: Any = None) -> Any:
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
        if self.distribute_embedding:
            if labels is None:
                return regions.leave_sliced(logits)
            return self._loss(logits, labels, num_items_in_batch), regions.leave_whole(
                logits.detach()
            )
        if labels is None:
            return logits
        return self._loss(logits, labels, num_items_in_batch), logits

    def _embedded(
        self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor | None
    ) -> torch.Tensor:
        hidden: torch.Tensor = self.word_embedding(ids)
        if self.embedding_scale != 1.0:
            hidden = hidden * torch.tensor(self.embedding_scale, dtype=hidden.dtype)
        if self.position_embedding is not None:
            if positions is None:
                positions = torch.arange(ids.shape[1], device=ids.device)[None, :]
            hidden = hidden + self.position_embedding(positions)
        if self.token_type_embedding is not None and types is not None:
            hidden = hidden + self.token_type_embedding(types)
        if self._norm_first:
            hidden = self.layernorm(hidden)
        if same_batches():  # hidden states, too, are to be the same on all ranks of the group
            return dropout(hidden, self.dropout.p, self.dropout.training, own=False)
        dropped: torch.Tensor = self.dropout(hidden)
        return dropped

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, items: Any) -> torch.Tensor:
        if self.causal_mask_size is not None:
            logits, labels = logits[:, :-1], labels[:, 1:]
        if self.distribute_embedding:
            return mean_loss(logits, labels, items)
        rows, targets = logits.flatten(0, 1), labels.flatten()
        how = "mean" if items is None else "sum"
        loss = functional.cross_entropy(rows, targets, reduction=how)
        return loss if items is None else loss.div(items)


def _embedding(
    rows: int, size: int, deviation: float, padding_idx: int | None = None
) -> nn.Embedding:
    embedding = nn.Embedding(rows, size, padding_idx, device="meta")
    fill = normal_but_for(padding_idx, deviation)
    embedding.weight = drawn(rows, size, axis=None, fill=fill, scaled_batch=False)
    return embedding


def _additive(mask: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """``[N, S]`` of 0 and 1 for masked -> ``[N, 1, 1, S]`` to add to scores."""
    if mask is None or mask.dim() == 4:
        return mask
    return (mask.to(like.dtype) * MASKED)[:, None, None, :]
