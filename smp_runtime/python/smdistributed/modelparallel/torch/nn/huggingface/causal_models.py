# SPDX-License-Identifier: Apache-2.0
"""Registers Hugging Face's causal models as ``DistributedTransformerLMHead``."""

from __future__ import annotations

from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface import gpt2, gptj, gptneo
from smdistributed.modelparallel.torch.nn.huggingface.language_models import (
    CROSS,
    causal_registrations,
)


def _gpt(config: Any, inner: int | None, dropout: tuple[float, float, float]) -> dict[str, Any]:
    """Keywords of all three models, by the names that their configs share.

    ``inner``: intermediate size, if the config has one. ``dropout``: of attention probabilities,
    of hidden states, of embeddings.
    """
    attention, hidden, embedding = dropout
    size = config.hidden_size
    return {
        "num_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "attention_head_size": size // config.num_attention_heads,
        "hidden_size": size,
        "intermediate_size": inner or 4 * size,
        "vocab_size": config.vocab_size,
        "num_positions": config.max_position_embeddings,
        "causal_mask_size": config.max_position_embeddings,
        "attention_dropout_prob": float(attention),
        "hidden_dropout_prob": float(hidden),
        "embedding_dropout_prob": float(embedding),
        "activation": config.activation_function,
        "layernorm_epsilon": config.layer_norm_epsilon,
        "initializer_range": config.initializer_range,
        "use_normal_initialization": True,
        "pre_layernorm": True,
        "post_layernorm": False,
    }


def _gpt2(config: Any) -> dict[str, Any]:
    dropout = (config.attn_pdrop, config.resid_pdrop, config.embd_pdrop)
    return {
        **_gpt(config, config.n_inner, dropout),
        "add_cross_attention": config.add_cross_attention,
        "scale_attention_scores": config.scale_attn_weights,
        "scale_attn_by_layer_idx": config.scale_attn_by_inverse_layer_idx,
        "attention_in_fp32": config.reorder_and_upcast_attn,
    }


def _gptj(config: Any) -> dict[str, Any]:
    dropout = (config.attn_pdrop, config.resid_pdrop, config.embd_pdrop)
    return {
        **_gpt(config, config.n_inner, dropout),
        "num_positions": 0,
        "rotary_dim": config.rotary_dim,
        "parallel_attn_output": True,
        "use_lm_head_bias": True,
        "use_qkv_bias": False,
        "use_attn_dense_bias": False,
        "attention_in_fp32": True,
    }


def _gptneo(config: Any) -> dict[str, Any]:
    dropout = (config.attention_dropout, config.resid_dropout, config.embed_dropout)
    return {
        **_gpt(config, config.intermediate_size, dropout),
        "attention_layers": tuple(config.attention_layers),
        "window_size": config.window_size,
        "scale_attention_scores": False,
        "use_qkv_bias": False,
        "attention_in_fp32": True,
    }


#: By class name in Transformers.
CAUSAL_MODELS = {
    **causal_registrations(("GPT2LMHeadModel", "GPT2Model"), _gpt2, gpt2.NAMES, CROSS),
    **causal_registrations(("GPTJForCausalLM", "GPTJModel"), _gptj, gptj.NAMES),
    **causal_registrations(("GPTNeoForCausalLM", "GPTNeoModel"), _gptneo, gptneo.NAMES),
}
