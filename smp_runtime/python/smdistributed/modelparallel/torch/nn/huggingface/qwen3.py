# SPDX-License-Identifier: Apache-2.0
"""Qwen3: state dicts of Hugging Face's models and of distributed ones; the names are Llama's."""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn.huggingface.llama import (
    translate_hf_state_dict_to_smdistributed_llama,
    translate_state_dict_to_hf_llama,
)

translate_hf_state_dict_to_smdistributed_qwen3 = translate_hf_state_dict_to_smdistributed_llama
translate_state_dict_to_hf_qwen3 = translate_state_dict_to_hf_llama
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_llama
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_llama
