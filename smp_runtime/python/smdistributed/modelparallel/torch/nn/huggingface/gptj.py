# SPDX-License-Identifier: Apache-2.0
"""GPT-J: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalMasks, CausalNames
from smdistributed.modelparallel.torch.nn.huggingface.name_table import linear

_LAYER = (
    linear("ln_1", "pre_layernorm"),  # one for attention and MLP, which stand side by side
    linear("attn.q_proj", "attention.query", bias=False),
    linear("attn.k_proj", "attention.key", bias=False),
    linear("attn.v_proj", "attention.value", bias=False),
    linear("attn.out_proj", "attention.dense", bias=False),
    linear("mlp.fc_in", "output.dense1"),
    linear("mlp.fc_out", "output.dense2"),
)

NAMES = CausalNames(_LAYER, r"\.attn\.((masked_)?bias|embed_positions)$", CausalMasks("attn", -1e9))

translate_hf_state_dict_to_smdistributed_gptj = NAMES.to_split
translate_state_dict_to_hf_gptj = NAMES.to_plain

# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptj
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptj
translate_hf_gptj_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptj
translate_hf_gptj_state_dict_to_smdistributed_gptj = translate_hf_state_dict_to_smdistributed_gptj
