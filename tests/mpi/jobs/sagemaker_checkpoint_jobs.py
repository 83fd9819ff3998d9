# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker_checkpoints.py: scripts of SMP v2 that save and resume, as the
published ones do."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers smddp
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from sagemaker_jobs import Training, network, script
from smdistributed.sagemaker._patches.optimizer_loading import plain_load_optimizer
from torch.distributed import checkpoint
from torch.distributed._shard.api import load_with_process_group
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.api import ShardedOptimStateDictConfig
from torch.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from torch.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemReader
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import async_save
from torch.sagemaker.distributed.checkpoint.state_dict_utils import (
    SMStateDictType,
    init_optim_state,
    sm_state_dict_type,
)
from torch.sagemaker.distributed.fsdp import checkpoint as older


def save_sharded(training: Training, folder: Path, _queue: Any) -> None:
    group, coordinator, action = training.saving_ranks()
    content = sharded_content(training)
    if action:
        checkpoint.save_state_dict(
            state_dict=content,
            storage_writer=checkpoint.FileSystemWriter(folder),
            planner=checkpoint.DefaultSavePlanner(),
            process_group=group,
            coordinator_rank=coordinator,
        )


def save_async_sharded(training: Training, folder: Path, queue: Any) -> None:
    group, coordinator, action = training.saving_ranks()
    content = sharded_content(training)
    if action:
        async_save(
            content,
            checkpoint_id=folder,
            process_group=group,
            coordinator_rank=coordinator,
            queue=queue,
        )


def sharded_content(training: Training) -> dict[str, Any]:
    with FSDP.state_dict_type(training.model, StateDictType.SHARDED_STATE_DICT):
        return {
            "optimizer": FSDP.optim_state_dict(training.model, training.optimizer),
            "model": training.model.state_dict(),
            "scheduler": training.scheduler.state_dict(),
            "total_steps": 2,
        }


def load_sharded(training: Training, folder: Path, by: Any, reader: Any, **state_of: Any) -> None:
    group, coordinator, _ = training.saving_ranks()
    with FSDP.state_dict_type(
        training.model,
        StateDictType.SHARDED_STATE_DICT,
        optim_state_dict_config=ShardedOptimStateDictConfig(offload_to_cpu=True),
    ):
        content = {
            "model": training.model.state_dict(),
            "scheduler": training.scheduler.state_dict(),
            "total_steps": 0,
        }
        by(
            state_dict=content,
            storage_reader=reader(folder),
            process_group=group,
            coordinator_rank=coordinator,
            planner=checkpoint.DefaultLoadPlanner(),
        )
        assert content["total_steps"] == 2
        training.model.load_state_dict(content["model"])
        training.scheduler.load_state_dict(content["scheduler"])
        read = state_of.pop("read", load_sharded_optimizer_state_dict)
        found = read(
            model_state_dict=content["model"],
            optimizer_key="optimizer",
            storage_reader=reader(folder),
            **({"process_group": training.model.process_group} if not state_of else {}),
        )
        training.optimizer.load_state_dict(
            FSDP.optim_state_dict_to_load(
                model=training.model, optim=training.optimizer, optim_state_dict=found["optimizer"]
            )
        )


def save_local(training: Training, folder: Path, _queue: Any) -> None:
    folder.mkdir(exist_ok=True)
    with FSDP.state_dict_type(training.model, StateDictType.LOCAL_STATE_DICT):
        content = {
            "model": training.model.state_dict(),
            "optimizer": training.optimizer.state_dict(),
            "scheduler": training.scheduler.state_dict(),
        }
    torch.save(content, folder / f"{dist.get_rank()}.pt")


def load_local(training: Training, folder: Path) -> None:
    with load_with_process_group(training.model.process_group):
        content = torch.load(folder / f"{dist.get_rank()}.pt")
    with FSDP.state_dict_type(training.model, StateDictType.LOCAL_STATE_DICT):
        training.model.load_state_dict(content["model"])
        training.scheduler.load_state_dict(content["scheduler"])
        training.optimizer.load_state_dict(content["optimizer"])


def replicas() -> tuple[list[int], Any]:
    own: Any = None
    for ranks in tsm.state.ranker.get_rep_groups():
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = ranks, group
    found: tuple[list[int], Any] = own
    return found


def save_async_local(training: Training, folder: Path, queue: Any) -> None:
    ranks, group = replicas()
    async_save(
        local_content(training),
        checkpoint_id=folder / f"tp0_ep0_fsdp{training.model.rank}",
        process_group=group,
        coordinator_rank=min(ranks),
        queue=queue,
    )


def local_content(training: Training) -> dict[str, Any]:
    with sm_state_dict_type(training.model, SMStateDictType.SM_LOCAL_STATE_DICT):
        return {
            "model": training.model.state_dict(),
            "optimizer": training.optimizer.state_dict(),
            "scheduler": training.scheduler.state_dict(),
        }


def load_async_local(training: Training, folder: Path) -> None:
    ranks, group = replicas()
    init_optim_state(training.optimizer, skip_empty_param=True)
    content = local_content(training)
    load(
        state_dict=content,
        process_group=group,
        coordinator_rank=min(ranks),
        storage_reader=DistributedFileSystemReader(folder / f"tp0_ep0_fsdp{training.model.rank}"),
    )
    training.scheduler.load_state_dict(content["scheduler"])
    # Tensors are the optimizer's own; its rate is a number, which is not.
    for group_, loaded in zip(
        training.optimizer.param_groups, content["optimizer"]["param_groups"], strict=True
    ):
        group_["lr"] = loaded["lr"]


def save_older(training: Training, folder: Path, _queue: Any) -> None:
    older.save_model_checkpoint(
        training.model,
        StateDictType.SHARDED_STATE_DICT,
        folder,
        ShardingStrategy.HYBRID_SHARD,
        training.saving_ranks(),
        log=False,
        optimizer=training.optimizer,
        scheduler=training.scheduler,
        extra_exports={"total_steps": 2},
    )


def load_older(training: Training, folder: Path) -> None:
    found = older.load_model_checkpoint(
        training.model,
        StateDictType.SHARDED_STATE_DICT,
        folder,
        ShardingStrategy.HYBRID_SHARD,
        training.saving_ranks(),
        log=False,
        optimizer=training.optimizer,
        scheduler=training.scheduler,
        extra_imports={"total_steps": 0},
    )
    assert found[older.EXPORT_KEY_MODEL] is training.model
    assert found[older.EXPORT_KEY_IDENTITY] == {"total_steps": 2}


SAVES: dict[str, Any] = {
    "sharded": save_sharded,
    "async_sharded": save_async_sharded,
    "local": save_local,
    "async_local": save_async_local,
    "older": save_older,
}
LOADS: dict[str, Any] = {
    "sharded": functools.partial(
        load_sharded, by=checkpoint.load_state_dict, reader=checkpoint.FileSystemReader
    ),
    "async_sharded": functools.partial(load_sharded, by=load, reader=DistributedFileSystemReader),
    "local": load_local,
    "async_local": load_async_local,
    "older": load_older,
    # A script that drops the argument which PyTorch does not know.
    "by PyTorch": functools.partial(
        load_sharded,
        by=checkpoint.load_state_dict,
        reader=checkpoint.FileSystemReader,
        read=plain_load_optimizer,
        plain=True,
    ),
}


def group_of(backend: str | None) -> Any:
    """All ranks in a group of this backend; None for that of the job."""
    return dist.new_group(backend=backend) if backend else None


def saved(
    config: dict[str, Any],
    strategy: str,
    folder: str,
    kind: str,
    backend: str | None = None,
    **options: Any,
) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor], list[int]]:
    """Two steps, a checkpoint, two steps: numbers of the latter, values at the checkpoint, indices
    of what was finished."""
    with script(config):
        training = Training(strategy, group_of(backend), **options)
        queue = AsyncCallsQueue()
        training.steps(0, 2)
        SAVES[kind](training, Path(folder), queue)
        values = training.whole()
        after = training.steps(2, 4)  # while an asynchronous save is written
        finished = queue.maybe_finalize_async_calls(blocking=True, process_group=None)
        assert queue.maybe_finalize_async_calls() == []
        dist.barrier()
        return after, values, finished


def resumed(
    config: dict[str, Any],
    strategy: str,
    folder: str,
    kind: str,
    backend: str | None = None,
    **options: Any,
) -> list[tuple[float, float]]:
    """Two steps of a job that begins with the checkpoint."""
    with script(config):
        training = Training(strategy, group_of(backend), **options)
        LOADS[kind](training, Path(folder))
        return training.steps(2, 4)


def loaded(
    config: dict[str, Any], strategy: str, folder: str, kind: str
) -> dict[str, torch.Tensor]:
    """Values of the model and of the optimizer, whole, as a job has them that begins with the
    checkpoint."""
    with script(config):
        training = Training(strategy)
        LOADS[kind](training, Path(folder))
        return training.whole() | training.optimizer_state()


def refusal(config: dict[str, Any], strategy: str, folder: str, kind: str) -> str:
    """Error of a job that begins with a checkpoint which is not for it."""
    error = ""
    try:
        resumed(config, strategy, folder, kind)
    except CheckpointException as caught:
        error = str(caught)
    dist.barrier()  # no rank ends the job while another one still loads
    return error


def saved_whole(config: dict[str, Any], folder: str) -> bool:
    """A full checkpoint, as published scripts write it. True on ranks that have its values."""
    with script(config):
        training = Training("HYBRID_SHARD", offload=True)
        training.steps(0, 1)
        options = FullStateDictConfig(rank0_only=True, offload_to_cpu=True, translate_on_save=True)
        with FSDP.state_dict_type(training.model, StateDictType.FULL_STATE_DICT, options):
            values = training.model.state_dict()
        if dist.get_rank() == 0:
            torch.save(values, Path(folder) / "pytorch_model.bin")
        expected = training.whole()
        assert all(torch.equal(one, expected[name]) for name, one in values.items())
        dist.barrier()
        return bool(values)


def plain_shapes() -> dict[str, tuple[int, ...]]:
    return {name: tuple(one.shape) for name, one in network().state_dict().items()}
