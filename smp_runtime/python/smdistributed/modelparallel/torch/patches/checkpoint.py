# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: not there yet."""

from smdistributed.modelparallel.torch.not_yet import unavailable_function

_FEATURE = "activation checkpointing"

checkpoint = unavailable_function("checkpoint", _FEATURE)
checkpoint_sequential = unavailable_function("checkpoint_sequential", _FEATURE)
