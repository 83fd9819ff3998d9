# SPDX-License-Identifier: Apache-2.0
"""RoBERTa: state dicts of Hugging Face's models and of distributed ones; the names are BERT's."""

from __future__ import annotations

from smdistributed.modelparallel.torch.nn.huggingface.bert import (
    translate_hf_state_dict_to_smdistributed_bert,
    translate_state_dict_to_hf_bert,
)

translate_hf_state_dict_to_smdistributed_roberta = translate_hf_state_dict_to_smdistributed_bert
translate_state_dict_to_hf_roberta = translate_state_dict_to_hf_bert

# Names under which published scripts and pages know it.
translate_hf_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_bert
translate_state_dict_to_smdistributed = translate_hf_state_dict_to_smdistributed_bert
