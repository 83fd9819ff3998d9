# SPDX-License-Identifier: Apache-2.0
"""GPT-2: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalNames
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

NAMES = CausalNames(_LAYER, r"\.attn\.(masked_)?bias$", "attn", -1e4)


def translate_hf_state_dict_to_smdistributed_gpt2(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of ``GPT2LMHeadModel`` or ``GPT2Model`` under the distributed names.

    ``max_seq_len`` is without effect: causal masks are no state of distributed modules.
    """
    return NAMES.to_split(state_dict)


def translate_state_dict_to_hf_gpt2(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The state dict of ``GPT2LMHeadModel``, or of ``GPT2Model`` if there is no head, from whole
    distributed values.

    With ``max_seq_len`` the causal masks of that length are among it, which versions of
    Transformers before 4.31 keep as buffers.
    """
    return NAMES.to_plain(state_dict, max_seq_len)


# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gpt2
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gpt2
