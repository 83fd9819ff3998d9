# SPDX-License-Identifier: Apache-2.0
"""Saving of sharded and local state by ``torch.distributed.checkpoint``, also beside training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from smdistributed.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemWriter
from smdistributed.sagemaker.distributed.checkpoint.save_parts import SaveParts

_queue = AsyncCallsQueue()


class PyTorchDistSaveShardedStrategy:
    """The one strategy of saves: each rank writes its pieces, in the format of DCP."""


def save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    coordinator_rank: int = 0,
    queue: AsyncCallsQueue | None = None,
    sharded_strategy: PyTorchDistSaveShardedStrategy | None = None,
    wait_error_handling: bool = True,
    force_check_all_plans: bool = True,
    s3_region: str | None = None,
    s3client_config: Any = None,
) -> Metadata:
    """Writes a checkpoint. The ranks of ``process_group`` call it together, and have it when they
    return.

    Args:
        state_dict: values by name; sharded tensors, tensors and anything that can be pickled.
        checkpoint_id: a folder that all hosts share, or ``s3://bucket/prefix``.
        storage_writer: in its place, a writer of DCP.
        planner: of DCP, by default its own.
        process_group: ranks that save; all, by default.
        coordinator_rank: rank of the job, one of the group, that writes what is common.
        queue: saves beside training that go before this one, if they are into the same folder.
        sharded_strategy: an instance of the one that there is, or None.
        wait_error_handling, force_check_all_plans: without effect: an error of a rank is always
            one of all, and plans are always compared.
        s3_region: of the bucket; by default what AWS's own variables say.
        s3client_config: an ``S3ClientConfig`` of s3torchconnector, or a mapping, of which
            ``part_size``, ``max_attempts`` and ``profile`` count.

    Raises:
        CheckpointException: it failed on some rank; what was there before stays.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metadata = save({"a": torch.ones(2)}, checkpoint_id=f"{folder}/step_1")
    ...     sorted(os.listdir(f"{folder}/step_1"))
    ['.metadata', '__0_0.distcp', 'smp_digests.json']
    """
    writer = _writer(checkpoint_id, storage_writer, sharded_strategy, s3_region, s3client_config)
    parts = _plan(state_dict, writer, planner, process_group, coordinator_rank, queue or _queue)
    parts.write()
    return parts.finish()


def async_save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    coordinator_rank: int = 0,
    queue: AsyncCallsQueue | None = None,
    sharded_strategy: PyTorchDistSaveShardedStrategy | None = None,
    wait_error_handling: bool = True,
    force_check_all_plans: bool = True,
    s3_region: str | None = None,
    s3client_config: Any = None,
) -> int:
    """As ``save``, but returns when this rank's pieces are copied to memory of the CPU; a thread
    writes them. The checkpoint is there when ``maybe_finalize_async_calls``, of ``queue`` or of
    this module, has returned the index that this function returns.
    """
    writer = _writer(checkpoint_id, storage_writer, sharded_strategy, s3_region, s3client_config)
    calls = queue or _queue
    parts = _plan(state_dict, writer, planner, process_group, coordinator_rank, calls)
    parts.write_beside()
    return calls.add(_target(writer), parts)


def maybe_finalize_async_calls(
    blocking: bool = True, process_group: dist.ProcessGroup | None = None
) -> list[int]:
    """``AsyncCallsQueue.maybe_finalize_async_calls`` of the saves that were given no queue."""
    return _queue.maybe_finalize_async_calls(blocking, process_group)


def _writer(
    checkpoint_id: str | os.PathLike[str] | None,
    writer: StorageWriter | None,
    strategy: PyTorchDistSaveShardedStrategy | None,
    s3_region: str | None,
    s3client_config: Any,
) -> StorageWriter:
    if strategy is not None and not isinstance(strategy, PyTorchDistSaveShardedStrategy):
        raise SMPValidationError(
            f"sharded_strategy is a {type(strategy).__name__}; expected a "
            "PyTorchDistSaveShardedStrategy or None"
        )
    if writer is None:
        if checkpoint_id is None:
            raise SMPValidationError("a save needs a checkpoint_id or a storage_writer")
        return DistributedFileSystemWriter(
            checkpoint_id, s3_region=s3_region, s3client_config=s3client_config
        )
    writer.reset(checkpoint_id)
    return writer


def _plan(
    state_dict: Mapping[str, Any],
    writer: StorageWriter,
    planner: SavePlanner | None,
    process_group: dist.ProcessGroup | None,
    coordinator_rank: int,
    calls: AsyncCallsQueue,
) -> SaveParts:
    """The save, planned by all ranks, when those before it into the same folder are over."""
    calls.finish_those_of(_target(writer))
    return SaveParts(state_dict, writer, planner, process_group, coordinator_rank)


def _target(writer: StorageWriter) -> str:
    return str(getattr(writer, "checkpoint_id", ""))
