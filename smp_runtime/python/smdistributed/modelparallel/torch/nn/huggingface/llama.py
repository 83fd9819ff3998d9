# SPDX-License-Identifier: Apache-2.0
"""Llama: state dicts of Hugging Face's models and of distributed ones, either from the other.

Mistral, Qwen2, Qwen3 and Gemma have the same names.
"""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalNames
from smdistributed.modelparallel.torch.nn.huggingface.name_table import linear

_LAYER = (
    linear("input_layernorm", "attention.pre_layernorm"),
    linear("self_attn.q_proj", "attention.query"),
    linear("self_attn.k_proj", "attention.key"),
    linear("self_attn.v_proj", "attention.value"),
    linear("self_attn.o_proj", "attention.dense"),
    linear("self_attn.q_norm", "attention.query_norm", bias=False),  # of Qwen3
    linear("self_attn.k_norm", "attention.key_norm", bias=False),
    linear("post_attention_layernorm", "output.pre_layernorm"),
    linear("mlp.gate_proj", "output.gate"),
    linear("mlp.up_proj", "output.dense1"),
    linear("mlp.down_proj", "output.dense2"),
)

NAMES = CausalNames(
    _LAYER,
    # Frequencies of rotary positions, which older versions of Transformers keep as buffers.
    r"rotary_emb\.(original_)?inv_freq$",
    prefix="model.",
    layers="layers.",
    outside={"embed_tokens": "word_embedding", "norm": "layernorm"},
)

translate_hf_state_dict_to_smdistributed_llama = NAMES.to_split
translate_state_dict_to_hf_llama = NAMES.to_plain

# Names of the pattern of the other models.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_llama
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_llama
