# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker_queue.py: saves beside training, when they are late or fail."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sagemaker_jobs import script
from smdistributed.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from smdistributed.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemWriter
from smdistributed.sagemaker.distributed.checkpoint.state_dict_loader import load
from smdistributed.sagemaker.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.checkpoint.api import CheckpointException


def content(value: float) -> dict[str, Any]:
    return {"weight": torch.full((4,), value), f"of rank {dist.get_rank()}": torch.ones(2) * value}


def read(folder: Path) -> float:
    found = content(0)
    load(found, checkpoint_id=folder, check_keys_matched=False)
    assert len({one.unique().item() for one in found.values()}) == 1
    return found["weight"][0].item()


def late(folder: str) -> dict[str, Any]:
    """The last rank's data is late; the tensors change in the meantime."""
    target, gate, told = Path(folder) / "one", threading.Event(), []
    is_late = dist.get_rank() == dist.get_world_size() - 1
    with script({}):
        queue, values = AsyncCallsQueue(), content(1)
        writer = DistributedFileSystemWriter(
            target,
            pre_write_hooks=[lambda _: gate.wait() if is_late else None],
            post_write_hooks=[lambda one: told.append(one.is_coordinator)],
        )
        index = async_save(values, storage_writer=writer, queue=queue)
        for one in values.values():
            one.fill_(7)
        early = queue.maybe_finalize_async_calls(blocking=False)
        was_there = target.exists()
        dist.barrier()
        gate.set()
        done = queue.maybe_finalize_async_calls(blocking=True)
        dist.barrier()
        return {
            "index": index,
            "early": early,
            "was there": was_there,
            "done": done,
            "value": read(target),
            "coordinators": told,
            "left": queue.get_num_unfinalized_calls(),
        }


def failing(folder: str) -> dict[str, Any]:
    """The last rank fails to write; the checkpoint before it stays, and the next one is saved."""

    def fail(_: Any) -> None:
        if dist.get_rank() == dist.get_world_size() - 1:
            raise OSError("disk is full")

    target, error = Path(folder) / "one", ""
    with script({}):
        queue = AsyncCallsQueue()
        save(content(1), checkpoint_id=target)
        writer = DistributedFileSystemWriter(target, pre_write_hooks=[fail])
        async_save(content(2), storage_writer=writer, queue=queue)
        try:
            queue.maybe_finalize_async_calls(blocking=True)
        except CheckpointException as caught:
            error = str(caught)
        dist.barrier()
        before = read(target)
        indices = [
            async_save(content(value), checkpoint_id=target, queue=queue) for value in (3, 4)
        ]
        done = queue.maybe_finalize_async_calls()
        dist.barrier()
        return {
            "error": error,
            "before": before,
            "indices": indices,
            "done": done,
            "after": read(target),
        }


def by_group(folder: str) -> tuple[float, bool]:
    """Pairs of ranks save by themselves, told by ranks of the job who coordinates."""
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    target = Path(folder) / str(rank // 2)
    with script({"hybrid_shard_degree": 2}):
        save(
            {"weight": torch.full((2,), float(rank // 2))},
            checkpoint_id=target,
            process_group=groups[rank // 2],
            coordinator_rank=rank // 2 * 2 + 1,
        )
        dist.barrier()
        found = {"weight": torch.zeros(2)}
        load(
            found,
            checkpoint_id=target,
            process_group=groups[rank // 2],
            coordinator_rank=rank // 2 * 2 + 1,
        )
        return found["weight"][0].item(), (target / ".metadata").exists()
