# SPDX-License-Identifier: Apache-2.0
"""GPT-NeoX: state dicts of Hugging Face's models and of distributed ones, either from the other.

Queries, keys and values stay in one linear layer, head by head, on both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalNames
from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, linear

_LAYER = (
    linear("input_layernorm", "attention.pre_layernorm"),
    linear("attention.query_key_value", "attention.query_key_value"),
    linear("attention.dense", "attention.dense"),
    linear("post_attention_layernorm", "output.pre_layernorm"),
    linear("mlp.dense_h_to_4h", "output.dense1"),
    linear("mlp.dense_4h_to_h", "output.dense2"),
)
_OLDER_HEAD, _HEAD = "embed_out", "lm_head"


def _head_here() -> str:
    """Name of the head in the Transformers that is imported: ``embed_out`` in version 4."""
    module = sys.modules.get("transformers.models.gpt_neox.modeling_gpt_neox")
    tied = getattr(getattr(module, "GPTNeoXForCausalLM", None), "_tied_weights_keys", None)
    return _OLDER_HEAD if f"{_OLDER_HEAD}.weight" in (tied or ()) else _HEAD


class _TableWithHead(NameTable):
    """Takes either name of the head, and gives the one that the installed version has."""

    def to_split(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        return super().to_split(_renamed(entries, _OLDER_HEAD, _HEAD))

    def to_plain(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        return _renamed(super().to_plain(entries), _HEAD, _head_here())


def _renamed(entries: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    start = f"{before}."
    return {
        f"{after}.{name.removeprefix(start)}" if name.startswith(start) else name: value
        for name, value in entries.items()
    }


NAMES = CausalNames(
    _LAYER,
    # Causal masks and frequencies of rotary positions, which older versions keep as buffers.
    r"\.attention\.((masked_)?bias|rotary_emb\.\w+)$",
    prefix="gpt_neox.",
    layers="layers.",
    outside={"embed_in": "word_embedding", "final_layer_norm": "layernorm"},
    table_class=_TableWithHead,
)

translate_hf_state_dict_to_smdistributed_gptneox = NAMES.to_split
translate_state_dict_to_hf_gptneox = NAMES.to_plain

# Names of the pattern of the other models.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptneox
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_gptneox
