# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing, where scripts import it from."""

from smdistributed.modelparallel.torch._recompute.activation_checkpointing import (
    checkpoint,
    checkpoint_sequential,
)

__all__ = ["checkpoint", "checkpoint_sequential"]
