# SPDX-License-Identifier: Apache-2.0
"""GPT-Neo: state dicts of Hugging Face's models and of distributed ones, either from the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_masks import with_causal_masks
from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, linear

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


def _table(prefix: str) -> NameTable:
    return NameTable(
        _LAYER,
        f"{prefix}h.",
        "transformer.seq_layers.",
        (
            linear(f"{prefix}wte", "word_embedding"),
            linear(f"{prefix}wpe", "position_embedding"),
            linear(f"{prefix}ln_f", "layernorm"),
        ),
        r"\.attn\.attention\.(masked_)?bias$",
    )


#: Of the model with a language-model head, and of the one without.
LM_HEAD_MODEL, MODEL = _table("transformer."), _table("")


def translate_hf_state_dict_to_smdistributed_gptneo(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of ``GPTNeoForCausalLM`` or ``GPTNeoModel`` under the distributed names.

    ``max_seq_len`` is without effect: causal masks are no state of distributed modules.
    """
    table = MODEL if "wte.weight" in state_dict else LM_HEAD_MODEL
    return table.to_split(state_dict)


def translate_state_dict_to_hf_gptneo(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The state dict of ``GPTNeoForCausalLM``, or of ``GPTNeoModel`` if there is no head, from
    whole distributed values.

    With ``max_seq_len`` the causal masks of that length are among it, which older versions of
    Transformers keep as buffers: of global and, each second layer, local attention over 256
    tokens, as all published models have.
    """
    table = LM_HEAD_MODEL if "lm_head.weight" in state_dict else MODEL
    plain = table.to_plain(state_dict)
    return with_causal_masks(
        plain, table.plain_layer, "attn.attention", max_seq_len, -1e9, _PUBLISHED_WINDOW
    )
