# SPDX-License-Identifier: Apache-2.0
"""GPT-Neo: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalMasks, CausalNames
from smdistributed.modelparallel.torch.nn.huggingface.name_table import linear

_LAYER = (
    linear("ln_1", "attention.pre_layernorm"),
    linear("attn.attention.q_proj", "attention.query", bias=False),
    linear("attn.attention.k_proj", "attention.key", bias=False),
    linear("attn.attention.v_proj", "attention.value", bias=False),
    linear("attn.attention.out_proj", "attention.dense"),
    linear("ln_2", "output.pre_layernorm"),
    linear("mlp.c_fc", "output.dense1"),
    linear("mlp.c_proj", "output.dense2"),
)
_PUBLISHED_WINDOW = 256  # window of local attention in each second layer

NAMES = CausalNames(
    _LAYER,
    r"\.attn\.attention\.(masked_)?bias$",
    CausalMasks("attn.attention", -1e9, _PUBLISHED_WINDOW),
)

translate_hf_state_dict_to_smdistributed_gptneo = NAMES.to_split
translate_state_dict_to_hf_gptneo = NAMES.to_plain

# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptneo
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptneo
