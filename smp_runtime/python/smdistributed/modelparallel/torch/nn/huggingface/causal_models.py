# SPDX-License-Identifier: Apache-2.0
"""Registers causal models as ``DistributedTransformerLMHead``: GPT and its kin, and models with
rotary positions: Llama and its kin, which have root mean square norms, grouped-query attention and
gated output layers, and GPT-NeoX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smdistributed.modelparallel.torch._annotations.tensor_registry import Arguments, Registration
from smdistributed.modelparallel.torch.nn.huggingface import gpt2, gptj, gptneo, gptneox
from smdistributed.modelparallel.torch.nn.huggingface.language_models import (
    CROSS,
    causal_registrations,
    model_arguments,
    refuse,
)
from smdistributed.modelparallel.torch.nn.huggingface.llama import NAMES


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


# Rotary positions whose frequencies depend on the length of what is read.
_CHANGING = ("dynamic", "longrope")
_POSITIONAL = ("input_ids", "attention_mask", "position_ids", "past_key_values", "inputs_embeds")
_POSITIONAL_NEOX = (*_POSITIONAL[:3], "inputs_embeds", "past_key_values")


def _arguments_of(module: Any) -> Arguments:
    """The config, and the module of rotary positions: its frequencies are what the config, and the
    version of Transformers, made of them. Older versions have one in each layer."""
    found = (part for name, part in module.named_modules() if name.endswith("rotary_emb"))
    return (module.config, next(found, None)), {}


def _positions(config: Any, rotary: Any) -> dict[str, Any]:
    return {
        "num_positions": 0,
        "causal_mask_size": config.max_position_embeddings,
        "rotary_dim": 2 * len(rotary.inv_freq),
        "rotary_interleaved": False,
        "rotary_frequencies": tuple(rotary.inv_freq.float().tolist()),
    }


def _sizes(config: Any, rotary: Any) -> dict[str, Any]:
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return {
        "num_layers": config.num_hidden_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": config.num_key_value_heads or heads,
        "attention_head_size": head_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "padding_idx": config.pad_token_id,
        **_positions(config, rotary),
        "use_qkv_bias": False,
        "use_attn_dense_bias": False,
        "attention_dropout_prob": float(config.attention_dropout or 0.0),
        "hidden_dropout_prob": 0.0,
        "activation": config.hidden_act,
        "gated_output": True,
        "use_output_bias": False,
        "normalization": "rmsnorm",
        "layernorm_epsilon": config.rms_norm_eps,
        "initializer_range": config.initializer_range,
        "use_normal_initialization": True,
        "pre_layernorm": True,
        "post_layernorm": False,
    }


def _llama(config: Any) -> dict[str, Any]:
    attention, output = bool(config.attention_bias), bool(config.mlp_bias)
    return {"use_qkv_bias": attention, "use_attn_dense_bias": attention, "use_output_bias": output}


def _mistral(config: Any) -> dict[str, Any]:
    return {"window_size": config.sliding_window}


def _qwen(config: Any) -> dict[str, Any]:
    kinds = ["local" if kind == "sliding_attention" else "global" for kind in config.layer_types]
    return {"attention_layers": tuple(kinds), "window_size": config.sliding_window}


def _qwen2(config: Any) -> dict[str, Any]:
    return {**_qwen(config), "use_qkv_bias": True}


def _qwen3(config: Any) -> dict[str, Any]:
    bias = bool(config.attention_bias)
    return {
        **_qwen(config),
        "use_qkv_bias": bias,
        "use_attn_dense_bias": bias,
        "normalize_queries_keys": True,
    }


def _gemma(config: Any) -> dict[str, Any]:
    return {"normalization": "rmsnorm_from_one", "embedding_scale": config.hidden_size**0.5}


def _gptneox(config: Any, rotary: Any) -> dict[str, Any]:
    bias = bool(config.attention_bias)
    return {
        "num_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "attention_head_size": config.hidden_size // config.num_attention_heads,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        **_positions(config, rotary),
        "fused_qkv": True,
        "use_qkv_bias": bias,
        "use_attn_dense_bias": bias,
        "attention_dropout_prob": float(config.attention_dropout),
        "hidden_dropout_prob": float(config.hidden_dropout),
        "activation": config.hidden_act,
        "layernorm_epsilon": config.layer_norm_eps,
        "initializer_range": config.initializer_range,
        "use_normal_initialization": True,
        "pre_layernorm": True,
        "post_layernorm": False,
        "parallel_attn_output": config.use_parallel_residual,
        "single_pre_layernorm": False,
    }


Sizes = Callable[[Any, Any], dict[str, Any]]
Special = Callable[[Any], dict[str, Any]]


def _unless_changing(sizes: Sizes) -> Callable[[Any, Any], dict[str, Any] | None]:
    def checked(config: Any, rotary: Any) -> dict[str, Any] | None:
        # A model that is not known here stays as it is, and its linear layers are split.
        if rotary is None or rotary.inv_freq.is_meta:
            return None
        kind = getattr(rotary, "rope_type", None)  # in older versions the class says it
        if kind in _CHANGING or getattr(rotary, "attention_scaling", 1.0) != 1.0:
            return None
        if kind is None and getattr(config, "rope_scaling", None) is not None:
            return None
        return sizes(config, rotary)

    return checked


def _forward_hook(
    name: str, *further: str, first: tuple[str, ...] = _POSITIONAL
) -> Callable[..., Arguments]:
    plain = model_arguments(name, *further, first=first)

    def hook(*args: Any, **kwargs: Any) -> Arguments:
        result = plain(*args, **kwargs)
        positions = result[0][0][3]
        refuse(name, {} if positions is None else {"position_ids": True})
        return result

    return hook


def _registrations(family: str, special: Special) -> dict[str, Registration]:
    return causal_registrations(
        (f"{family}ForCausalLM", f"{family}Model"),
        _unless_changing(lambda config, rotary: {**_sizes(config, rotary), **special(config)}),
        NAMES,
        arguments_of=_arguments_of,
        forward_hook=_forward_hook,
    )


#: By class name in Transformers.
LLAMA_MODELS = {
    **_registrations("Llama", _llama),
    **_registrations("Mistral", _mistral),
    **_registrations("Qwen2", _qwen2),
    **_registrations("Qwen3", _qwen3),
    **_registrations("Gemma", _gemma),
}
GPTNEOX_MODELS = causal_registrations(
    ("GPTNeoXForCausalLM", "GPTNeoXModel"),
    _unless_changing(_gptneox),
    gptneox.NAMES,
    arguments_of=_arguments_of,
    forward_hook=functools.partial(_forward_hook, first=_POSITIONAL_NEOX),
)
