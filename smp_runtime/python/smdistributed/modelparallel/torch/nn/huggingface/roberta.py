# SPDX-License-Identifier: Apache-2.0
"""Translations of state dicts: they come with tensor parallelism."""

from smdistributed.modelparallel.torch.not_yet import unavailable_function

_FEATURE = "tensor parallelism"

translate_state_dict_to_hf_roberta = unavailable_function(
    "translate_state_dict_to_hf_roberta", _FEATURE
)
translate_hf_state_dict_to_smdistributed_roberta = unavailable_function(
    "translate_hf_state_dict_to_smdistributed_roberta", _FEATURE
)
translate_state_dict_to_smdistributed = unavailable_function(
    "translate_state_dict_to_smdistributed", _FEATURE
)
