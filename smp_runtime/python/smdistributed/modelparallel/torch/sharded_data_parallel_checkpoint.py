# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts from the shards that a job with sharded data parallelism saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.resharded_parts import joined_entries
from smdistributed.modelparallel.torch._checkpoint.saved_parts import open_parts
from smdistributed.modelparallel.torch._checkpoint.saved_states import SavedRanks, with_tied
from smdistributed.modelparallel.torch._state.model_names import get_buffer_names, get_param_shapes
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

__all__ = [
    "get_buffer_names",
    "get_full_state_dict_from_sharded_data_parallel_checkpoint",
    "get_param_shapes",
]


def get_full_state_dict_from_sharded_data_parallel_checkpoint(
    checkpoint_dir: str,
    dtype: torch.dtype = torch.float32,
    tag: str | None = None,
    remove_smp_prefix: bool = True,
    weights_only: bool = True,
) -> dict[str, Any]:
    """The whole model from a partial checkpoint, in one process, without a job.

    Args:
        checkpoint_dir: the ``path`` of ``smp.save_checkpoint``.
        dtype: of the parameters that were trained; buffers keep theirs.
        tag: of the checkpoint; the newest unless given.
        remove_smp_prefix: accepted; names are the user's anyway, of distributed modules theirs.
        weights_only: as of ``smp.resume_from_checkpoint``.

    Returns:
        A state dict of whole values on the CPU.

    Raises:
        SMPCheckpointError: a checkpoint that is not there, damaged, or not complete.
    """
    folder = open_parts(Path(checkpoint_dir), tag, weights_only=weights_only)
    slices = folder.slices(tp_size=1)
    assert slices is not None  # only of more tensor ranks it may not be known
    saved = SavedRanks(folder)
    parts = [_of_tensor_rank(saved, rank, dtype) for rank in range(folder.tp)]
    return joined_entries(parts, slices.axes)


def _of_tensor_rank(ranks: SavedRanks, rank: int, dtype: torch.dtype) -> dict[str, Any]:
    saved = ranks.state(rank, names=None)
    if not ranks.is_sharded or not saved.has_values_in_shards:
        raise SMPCheckpointError(
            f"{saved.where} holds no shards of parameters: the job that saved it had no sharded "
            "data parallelism, or files are missing"
        )
    masters = saved.whole_masters()
    trained = {name: masters.pop(name).to(dtype) for name in list(masters)}  # one at a time
    return saved.entries | with_tied(trained, saved.tied)
