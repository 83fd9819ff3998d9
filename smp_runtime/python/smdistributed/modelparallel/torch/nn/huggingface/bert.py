# SPDX-License-Identifier: Apache-2.0
"""BERT: state dicts of Hugging Face's models and of distributed ones, either from the other.

RoBERTa has the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.encoder_names import (
    encoder_to_plain,
    encoder_to_split,
)


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
