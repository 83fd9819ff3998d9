# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts from the shards of sharded data parallelism: not there yet."""

from smdistributed.modelparallel.torch.not_yet import unavailable_function

_FEATURE = "sharded data parallelism"

get_full_state_dict_from_sharded_data_parallel_checkpoint = unavailable_function(
    "get_full_state_dict_from_sharded_data_parallel_checkpoint", _FEATURE
)
get_param_shapes = unavailable_function("get_param_shapes", _FEATURE)
get_buffer_names = unavailable_function("get_buffer_names", _FEATURE)
