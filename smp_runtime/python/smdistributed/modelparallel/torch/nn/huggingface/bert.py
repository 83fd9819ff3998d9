# SPDX-License-Identifier: Apache-2.0
"""BERT: state dicts of Hugging Face's models and of distributed ones, either from the other.

RoBERTa has the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, linear

_LAYER = (
    linear("attention.self.query", "attention.query"),
    linear("attention.self.key", "attention.key"),
    linear("attention.self.value", "attention.value"),
    linear("attention.output.dense", "attention.dense"),
    linear("attention.output.LayerNorm", "attention.layernorm"),
    linear("crossattention.self.query", "cross_attention.query"),
    linear("crossattention.self.key", "cross_attention.key"),
    linear("crossattention.self.value", "cross_attention.value"),
    linear("crossattention.output.dense", "cross_attention.dense"),
    linear("crossattention.output.LayerNorm", "cross_attention.layernorm"),
    linear("intermediate.dense", "output.dense1"),
    linear("output.dense", "output.dense2"),
    linear("output.LayerNorm", "output.layernorm"),
)


def encoder_to_split(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Distributed names for the encoders anywhere in the state dict of a model."""
    entries = dict(state_dict)
    for prefix in _prefixes(state_dict, r"(.*?)layer\.\d+\."):
        entries = NameTable(_LAYER, f"{prefix}layer.", f"{prefix}seq_layers.").to_split(entries)
    return entries


def encoder_to_plain(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Hugging Face's names for the encoders anywhere in the state dict of a model."""
    entries = dict(state_dict)
    for prefix in _prefixes(state_dict, r"(.*?)seq_layers\.\d+\."):
        entries = NameTable(_LAYER, f"{prefix}layer.", f"{prefix}seq_layers.").to_plain(entries)
    return entries


def _prefixes(state_dict: Mapping[str, Any], pattern: str) -> list[str]:
    return sorted({match[1] for key in state_dict if (match := re.match(pattern, key))})


def translate_hf_state_dict_to_smdistributed_bert(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """A state dict of any of Hugging Face's BERT or RoBERTa models under the distributed names.

    ``max_seq_len`` is without effect: encoders have no causal masks.
    """
    return encoder_to_split(state_dict)


def translate_state_dict_to_hf_bert(
    state_dict: Mapping[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The inverse of ``translate_hf_state_dict_to_smdistributed_bert``."""
    return encoder_to_plain(state_dict)


# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_bert
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_bert
