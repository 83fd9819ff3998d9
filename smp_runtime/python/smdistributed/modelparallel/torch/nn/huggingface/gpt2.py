# SPDX-License-Identifier: Apache-2.0
"""GPT-2: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalMasks, CausalNames
from smdistributed.modelparallel.torch.nn.huggingface.name_table import conv1d, linear

_LAYER = (
    linear("ln_1", "attention.pre_layernorm"),
    conv1d("attn.c_attn", "attention.query", "attention.key", "attention.value"),
    conv1d("attn.c_proj", "attention.dense"),
    linear("ln_cross_attn", "cross_attention.pre_layernorm"),
    conv1d("crossattention.q_attn", "cross_attention.query"),
    conv1d("crossattention.c_attn", "cross_attention.key", "cross_attention.value"),
    conv1d("crossattention.c_proj", "cross_attention.dense"),
    linear("ln_2", "output.pre_layernorm"),
    conv1d("mlp.c_fc", "output.dense1"),
    conv1d("mlp.c_proj", "output.dense2"),
)

NAMES = CausalNames(_LAYER, r"\.attn\.(masked_)?bias$", CausalMasks("attn", -1e4))

translate_hf_state_dict_to_smdistributed_gpt2 = NAMES.to_split
translate_state_dict_to_hf_gpt2 = NAMES.to_plain

# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gpt2
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gpt2
