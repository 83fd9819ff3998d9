# SPDX-License-Identifier: Apache-2.0
"""State dicts of BERT and its kin: names inside their encoders."""

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
