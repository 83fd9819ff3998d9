# SPDX-License-Identifier: Apache-2.0
"""GPT-Neo: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalNames
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
_PUBLISHED_WINDOW = 256

NAMES = CausalNames(_LAYER, r"\.attn\.attention\.(masked_)?bias$", "attn.attention", -1e9)


def translate_hf_state_dict_to_smdistributed_gptneo(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of ``GPTNeoForCausalLM`` or ``GPTNeoModel`` under the distributed names.

    ``max_seq_len`` is without effect: causal masks are no state of distributed modules.
    """
    return NAMES.to_split(state_dict)


def translate_state_dict_to_hf_gptneo(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The state dict of ``GPTNeoForCausalLM``, or of ``GPTNeoModel`` if there is no head, from
    whole distributed values.

    With ``max_seq_len`` the causal masks of that length are among it, which older versions of
    Transformers keep as buffers: of global and, each second layer, local attention over 256
    tokens, as all published models have.
    """
    return NAMES.to_plain(state_dict, max_seq_len, _PUBLISHED_WINDOW)


# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptneo
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptneo
