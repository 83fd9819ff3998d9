# SPDX-License-Identifier: Apache-2.0
"""Llama: state dicts of Hugging Face's models and of distributed ones, either from the other.

Mistral, Qwen2 and Gemma have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, linear

_LAYER = (
    linear("input_layernorm", "attention.pre_layernorm"),
    linear("self_attn.q_proj", "attention.query"),
    linear("self_attn.k_proj", "attention.key"),
    linear("self_attn.v_proj", "attention.value"),
    linear("self_attn.o_proj", "attention.dense"),
    linear("post_attention_layernorm", "output.pre_layernorm"),
    linear("mlp.gate_proj", "output.gate"),
    linear("mlp.up_proj", "output.dense1"),
    linear("mlp.down_proj", "output.dense2"),
)


def _table(prefix: str) -> NameTable:
    outside = (
        linear(f"{prefix}embed_tokens", "word_embedding"),
        linear(f"{prefix}norm", "layernorm"),
    )
    # Frequencies of rotary positions, which older versions of Transformers keep as buffers.
    buffers = r"rotary_emb\.(original_)?inv_freq$"
    return NameTable(_LAYER, f"{prefix}layers.", "transformer.seq_layers.", outside, buffers)


WITH_HEAD, WITHOUT_HEAD = _table("model."), _table("")


def translate_hf_state_dict_to_smdistributed_llama(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of ``LlamaForCausalLM`` or ``LlamaModel`` under the distributed names.

    ``max_seq_len`` is without effect: causal masks are no state of either model.
    """
    table = WITHOUT_HEAD if "embed_tokens.weight" in state_dict else WITH_HEAD
    return table.to_split(state_dict)


def translate_state_dict_to_hf_llama(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The state dict of ``LlamaForCausalLM``, or of ``LlamaModel`` if there is no head, from whole
    distributed values. ``max_seq_len`` is without effect."""
    table = WITH_HEAD if "lm_head.weight" in state_dict else WITHOUT_HEAD
    return table.to_plain(state_dict)


# Names of the pattern of the other models.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_llama
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_llama
