# SPDX-License-Identifier: Apache-2.0
"""Registers Llama and its kin as ``DistributedTransformerLMHead``: root mean square norms, rotary
positions, grouped-query attention, gated output layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smdistributed.modelparallel.torch._annotations.tensor_registry import Arguments, Registration
from smdistributed.modelparallel.torch.nn.huggingface.language_models import (
    causal_registrations,
    model_arguments,
    refuse,
)
from smdistributed.modelparallel.torch.nn.huggingface.llama import NAMES

# Rotary positions whose frequencies depend on the length of what is read.
_CHANGING = ("dynamic", "longrope")
_POSITIONAL = (
    "input_ids",
    "attention_mask",
    "position_ids",
    "past_key_values",
    "inputs_embeds",
)


def _arguments_of(module: Any) -> Arguments:
    """The config, and the module of rotary positions: its frequencies are what the config, and the
    version of Transformers, made of them."""
    return (module.config, getattr(module, "model", module).rotary_emb), {}


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
        "num_positions": 0,
        "causal_mask_size": config.max_position_embeddings,
        "rotary_dim": head_size,
        "rotary_interleaved": False,
        "rotary_frequencies": tuple(rotary.inv_freq.float().tolist()),
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
    return {
        "use_qkv_bias": attention,
        "use_attn_dense_bias": attention,
        "use_output_bias": output,
    }


def _mistral(config: Any) -> dict[str, Any]:
    return {"window_size": config.sliding_window}


def _qwen2(config: Any) -> dict[str, Any]:
    kinds = ["local" if kind == "sliding_attention" else "global" for kind in config.layer_types]
    return {
        "use_qkv_bias": True,
        "attention_layers": tuple(kinds),
        "window_size": config.sliding_window,
    }


def _gemma(config: Any) -> dict[str, Any]:
    return {
        "normalization": "rmsnorm_from_one",
        "embedding_scale": config.hidden_size**0.5,
    }


Special = Callable[[Any], dict[str, Any]]


def _sizes_with(special: Special) -> Callable[[Any, Any], dict[str, Any] | None]:
    def sizes(config: Any, rotary: Any) -> dict[str, Any] | None:
        # A model that is not known here stays as it is, and its linear layers are split.
        if rotary.rope_type in _CHANGING or rotary.attention_scaling != 1.0:
            return None
        if rotary.inv_freq.is_meta:
            return None
        return {**_sizes(config, rotary), **special(config)}

    return sizes


def _forward_hook(name: str, *further: str) -> Callable[..., Arguments]:
    plain = model_arguments(name, *further, first=_POSITIONAL)

    def hook(*args: Any, **kwargs: Any) -> Arguments:
        result = plain(*args, **kwargs)
        positions = result[0][0][3]
        refuse(name, {} if positions is None else {"position_ids": True})
        return result

    return hook


def _registrations(family: str, special: Special) -> dict[str, Registration]:
    return causal_registrations(
        (f"{family}ForCausalLM", f"{family}Model"),
        _sizes_with(special),
        NAMES,
        arguments_of=_arguments_of,
        forward_hook=_forward_hook,
    )


#: By class name in Transformers.
LLAMA_MODELS = {
    **_registrations("Llama", _llama),
    **_registrations("Mistral", _mistral),
    **_registrations("Qwen2", _qwen2),
    **_registrations("Gemma", _gemma),
}
