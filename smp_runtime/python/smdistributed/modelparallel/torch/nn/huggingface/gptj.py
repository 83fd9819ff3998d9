# SPDX-License-Identifier: Apache-2.0
"""GPT-J: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_masks import with_causal_masks
from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, linear

_LAYER = (
    linear("ln_1", "pre_layernorm"),  # one for attention and MLP, which stand side by side
    linear("attn.q_proj", "attention.query", bias=False),
    linear("attn.k_proj", "attention.key", bias=False),
    linear("attn.v_proj", "attention.value", bias=False),
    linear("attn.out_proj", "attention.dense", bias=False),
    linear("mlp.fc_in", "output.dense1"),
    linear("mlp.fc_out", "output.dense2"),
)


def _table(prefix: str) -> NameTable:
    return NameTable(
        _LAYER,
        f"{prefix}h.",
        "transformer.seq_layers.",
        (
            linear(f"{prefix}wte", "word_embedding"),
            linear(f"{prefix}ln_f", "layernorm"),
        ),
        r"\.attn\.((masked_)?bias|embed_positions)$",
    )


#: Of the model with a language-model head, and of the one without.
LM_HEAD_MODEL, MODEL = _table("transformer."), _table("")


def translate_hf_gptj_state_dict_to_smdistributed_gptj(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of ``GPTJForCausalLM`` or ``GPTJModel`` under the distributed names.

    ``max_seq_len`` is without effect: causal masks are no state of distributed modules.
    """
    table = MODEL if "wte.weight" in state_dict else LM_HEAD_MODEL
    return table.to_split(state_dict)


def translate_state_dict_to_hf_gptj(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The state dict of ``GPTJForCausalLM``, or of ``GPTJModel`` if there is no head, from whole
    distributed values.

    With ``max_seq_len`` the causal masks of that length are among it, which older versions of
    Transformers keep as buffers.
    """
    table = LM_HEAD_MODEL if "lm_head.weight" in state_dict else MODEL
    plain = table.to_plain(state_dict)
    return with_causal_masks(plain, table.plain_layer, "attn", max_seq_len, -1e9)


translate_hf_gptj_state_dict_to_smdistributed = translate_hf_gptj_state_dict_to_smdistributed_gptj
