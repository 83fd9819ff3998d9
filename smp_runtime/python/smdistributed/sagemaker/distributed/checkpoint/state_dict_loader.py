# SPDX-License-Identifier: Apache-2.0
"""Loading of what ``state_dict_saver``, or ``torch.distributed.checkpoint``, has saved."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.storage import StorageReader
from torch.distributed.tensor import DTensor

from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from smdistributed.sagemaker._patches.coordinators import plain_load, rank_in_group
from smdistributed.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemReader


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    check_keys_matched: bool = True,
    coordinator_rank: int = 0,
    s3_region: str | None = None,
    s3client_config: Any = None,
) -> None:
    """Reads a checkpoint into ``state_dict``: tensors in place, other values by replacing them. The
    ranks of ``process_group`` call it together.

    Args:
        state_dict: what to read, by name; other values of the checkpoint are left alone.
        checkpoint_id: the checkpoint's folder, or ``s3://bucket/prefix``.
        storage_reader: in its place, a reader of DCP.
        planner: of DCP, by default its own.
        process_group: ranks that load; all, by default.
        check_keys_matched: compare the names of all ranks first.
        coordinator_rank: rank of the job, one of the group, that plans.
        s3_region, s3client_config: as in ``save``.

    Raises:
        SMPCheckpointError: the ranks ask for different names.
        CheckpointException: the checkpoint is not whole, or is none of this state, on some rank.

    >>> import tempfile
    >>> from smdistributed.sagemaker.distributed.checkpoint.state_dict_saver import save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metadata = save({"a": torch.ones(2), "step": 3}, checkpoint_id=f"{folder}/step_3")
    ...     content = {"a": torch.zeros(2), "step": 0}
    ...     load(content, checkpoint_id=f"{folder}/step_3")
    ...     content
    {'a': tensor([1., 1.]), 'step': 3}
    """
    if storage_reader is None:
        if checkpoint_id is None:
            raise SMPValidationError("a load needs a checkpoint_id or a storage_reader")
        storage_reader = DistributedFileSystemReader(
            checkpoint_id, s3_region=s3_region, s3client_config=s3client_config
        )
    elif checkpoint_id is not None:
        storage_reader.reset(checkpoint_id)
    if check_keys_matched and dist.is_initialized():
        _compare_keys(state_dict, process_group)
    content = {
        name: value.state_dict() if isinstance(value, Stateful) else value
        for name, value in state_dict.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch prefers dcp.load: no coordinator
        plain_load(
            content,
            storage_reader,
            process_group,
            rank_in_group(process_group, coordinator_rank),
            not dist.is_initialized(),
            planner or _Planner(),
        )
    for name, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(content[name])
        else:
            state_dict[name] = content[name]


def _compare_keys(state_dict: dict[str, Any], group: dist.ProcessGroup | None) -> None:
    of_ranks: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(of_ranks, sorted(state_dict), group=group)
    for rank, names in enumerate(of_ranks):
        different = set(names) ^ set(of_ranks[0])
        if different:
            raise SMPCheckpointError(
                f"ranks 0 and {rank} of the group ask for different values: "
                f"{', '.join(sorted(different))} is on one of them alone"
            )


class _Planner(DefaultLoadPlanner):
    """DCP's own, which says what a tensor of another size means."""

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        for name, value in self.state_dict.items():
            stored = self.metadata.state_dict_metadata.get(name)
            is_whole = isinstance(value, torch.Tensor) and not isinstance(
                value, ShardedTensor | DTensor
            )
            if not is_whole or not isinstance(stored, TensorStorageMetadata):
                continue
            if stored.size != value.size():
                raise SMPCheckpointError(
                    f"{name} is {tuple(stored.size)} in the checkpoint; expected "
                    f"{tuple(value.size())}. A local checkpoint is for jobs with the "
                    "hybrid_shard_degree of the one that wrote it; a sharded one is for any"
                )
        return super().create_local_plan()
