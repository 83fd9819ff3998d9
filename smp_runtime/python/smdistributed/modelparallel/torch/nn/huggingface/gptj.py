# SPDX-License-Identifier: Apache-2.0
"""GPT-J: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalNames
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

NAMES = CausalNames(
    _LAYER, r"\.attn\.((masked_)?bias|embed_positions)$", "attn", -1e9, has_positions=False
)


def translate_hf_state_dict_to_smdistributed_gptj(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of ``GPTJForCausalLM`` or ``GPTJModel`` under the distributed names.

    ``max_seq_len`` is without effect: causal masks are no state of distributed modules.
    """
    return NAMES.to_split(state_dict)


def translate_state_dict_to_hf_gptj(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The state dict of ``GPTJForCausalLM``, or of ``GPTJModel`` if there is no head, from whole
    distributed values.

    With ``max_seq_len`` the causal masks of that length are among it, which older versions of
    Transformers keep as buffers.
    """
    return NAMES.to_plain(state_dict, max_seq_len)


# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptj
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptj
translate_hf_gptj_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptj
translate_hf_gptj_state_dict_to_smdistributed_gptj = translate_hf_state_dict_to_smdistributed_gptj
