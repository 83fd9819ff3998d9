# SPDX-License-Identifier: Apache-2.0
"""Registers the encoder of BERT and its kin as a ``DistributedTransformer``."""

from __future__ import annotations

from typing import Any

import torch

from smdistributed.modelparallel.torch._annotations.tensor_registry import Arguments, Registration
from smdistributed.modelparallel.torch.nn import DistributedTransformer
from smdistributed.modelparallel.torch.nn.huggingface.bert import encoder_to_plain, encoder_to_split
from smdistributed.modelparallel.torch.nn.huggingface.language_models import (
    arguments_from_config,
    model_result,
    refuse,
)


def _sizes(config: Any) -> Any:
    decoder = bool(config.is_decoder)
    return (), {
        "num_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "attention_head_size": config.hidden_size // config.num_attention_heads,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "causal_mask_size": config.max_position_embeddings if decoder else None,
        "add_cross_attention": bool(config.add_cross_attention),
        "attention_dropout_prob": config.attention_probs_dropout_prob,
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "activation": config.hidden_act,
        "layernorm_epsilon": config.layer_norm_eps,
        "initializer_range": config.initializer_range,
        "use_normal_initialization": True,
        "pre_layernorm": False,
        "post_layernorm": True,
    }


def _encoder_arguments(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    encoder_hidden_states: torch.Tensor | None = None,
    encoder_attention_mask: torch.Tensor | None = None,
    past_key_values: Any = None,
    use_cache: bool | None = None,
    **others: Any,
) -> Arguments:
    """The forward hook. Position ids are for attention of other kinds."""
    asked = {key: others.get(key) for key in ("output_attentions", "output_hidden_states")}
    cached = past_key_values is not None and past_key_values.get_seq_length() > 0
    refuse("the encoder", {"past_key_values": cached, **asked})
    mask = _additive(hidden_states, attention_mask)
    if encoder_hidden_states is None:
        return ((hidden_states, mask),), {}
    cross_mask = _additive(encoder_hidden_states, encoder_attention_mask)
    return ((hidden_states, encoder_hidden_states, mask, cross_mask),), {}


def _additive(states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mask that is added to the scores, [batch, 1, 1, keys].

    Hugging Face leaves a mask out when nothing is masked. Whether something is may differ between
    the ranks that exchange batches, so there is always one here.
    """
    batch, length = states.shape[:2]
    if mask is None:
        return states.new_zeros(batch, 1, 1, length)
    if mask.dim() == 2:  # 1 where a token is seen, as for flash attention
        mask = (mask != 0)[:, None, None, :]
    # The last token sees all that is not padding, with a causal mask, too.
    mask = mask[:, :1, -1:, :].expand(batch, 1, 1, length)
    if mask.dtype != torch.bool:
        return mask.to(states.dtype)
    lowest = torch.finfo(states.dtype).min
    return states.new_zeros(batch, 1, 1, length).masked_fill(~mask, lowest)


_ENCODER = Registration(
    DistributedTransformer,
    _sizes,
    _encoder_arguments,
    lambda result: model_result(result[0]),
    arguments_from_config,
    encoder_to_split,
    encoder_to_plain,
)

#: By class name in Transformers.
ENCODERS = {"BertEncoder": _ENCODER, "RobertaEncoder": _ENCODER}
