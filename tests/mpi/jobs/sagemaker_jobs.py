# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker*.py: scripts of SMP v2 in small, on the ranks of a pool."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from smdistributed.modelparallel.torch.exceptions import SMPConfigError
from smdistributed.sagemaker._patches.optimizer_loading import plain_load_optimizer
from torch import nn
from torch.distributed import checkpoint
from torch.distributed._shard.api import load_with_process_group
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.api import ShardedOptimStateDictConfig
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
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
from torch.sagemaker.grad_norm import clip_grad_norm_
from torch.sagemaker.utils.process_group_utils import get_global_ranks

WIDTH = 6  # which the ranks do not divide


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, 3 * WIDTH)
        self.outer = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = values + self.outer(torch.tanh(self.inner(self.norm(values))))
        return result


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, WIDTH), *(Block() for _ in range(3)), nn.Linear(WIDTH, 1))


def batch(step: int, share: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + share)
    values = torch.randn(4, 5, generator=generator)
    return values, values.sum(1, keepdim=True).sin()


@contextmanager
def script(config: dict[str, Any] | None) -> Iterator[None]:
    """A script with these settings; None: a script of plain FSDP."""
    tsm.state.reset()
    if config is not None:
        tsm.init(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of FSDP1 as a whole
        yield
    tsm.state.reset()


class Training:
    """A model, its optimizer and its scheduler, as a script of SMP v2 makes them."""

    def __init__(
        self, strategy: str, group: Any = None, orig_params: bool = True, offload: bool = False
    ) -> None:
        self.fsdp = FSDP(
            network(),
            group,
            getattr(ShardingStrategy, strategy),
            None,  # as scripts may: arguments by their places
            ModuleWrapPolicy({Block}),
            use_orig_params=orig_params,
            device_id=None if tsm.is_initialized() else torch.device("cpu"),
        )
        self.model: nn.Module = offload_wrapper(self.fsdp) if offload else self.fsdp
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def steps(self, first: int, last: int, equal_data: bool = False) -> list[tuple[float, float]]:
        """Loss over all ranks and norm of the gradients, of each step."""
        numbers = []
        for step in range(first, last):
            values, wanted = batch(step, 0 if equal_data else dist.get_rank())
            loss = (self.model(values) - wanted).square().mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = clip_grad_norm_(self.model, 0.5)
            self.optimizer.step()
            self.scheduler.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            numbers.append((mean.item(), norm.item()))
        return numbers

    def whole(self) -> dict[str, torch.Tensor]:
        """Full values of the model, on all ranks."""
        options = FullStateDictConfig(rank0_only=False, offload_to_cpu=False)
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, options):
            return {name: one.clone() for name, one in self.model.state_dict().items()}

    def saving_ranks(self) -> tuple[Any, int, bool]:
        """Group, coordinator as a rank of the job, and whether this rank writes."""
        group = self.model.process_group
        action = tsm.state.ranker.get_rep_rank(dist.get_rank()) == 0
        return group, min(get_global_ranks(group)), action


def plain_pairs(degree: int) -> Any:
    """Groups of hybrid shards by PyTorch alone."""
    size, rank = dist.get_world_size(), dist.get_rank()
    made = {}
    for kind, groups in (
        ("shard", [list(range(at, at + degree)) for at in range(0, size, degree)]),
        ("replica", [list(range(at, size, degree)) for at in range(degree)]),
    ):
        for ranks in groups:
            group = dist.new_group(ranks)
            if rank in ranks:
                made[kind] = group
    return made["shard"], made["replica"]


def losses(
    config: dict[str, Any] | None,
    strategy: str,
    plain_degree: int = 0,
    equal_data: bool = False,
    **options: Any,
) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor]]:
    with script(config):
        training = Training(
            strategy, plain_pairs(plain_degree) if plain_degree else None, **options
        )
        return training.steps(0, 4, equal_data), training.whole()


# --- Checkpoints, as the published scripts write and read them -----------------------------------


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


def saved(
    config: dict[str, Any], strategy: str, folder: str, kind: str, **options: Any
) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor], list[int]]:
    """Two steps, a checkpoint, two steps: numbers of the latter, values at the checkpoint, indices
    of what was finished."""
    with script(config):
        training, queue = Training(strategy, **options), AsyncCallsQueue()
        training.steps(0, 2)
        SAVES[kind](training, Path(folder), queue)
        values = training.whole()
        after = training.steps(2, 4)  # while an asynchronous save is written
        finished = queue.maybe_finalize_async_calls(blocking=True, process_group=None)
        assert queue.maybe_finalize_async_calls() == []
        dist.barrier()
        return after, values, finished


def resumed(
    config: dict[str, Any], strategy: str, folder: str, kind: str, **options: Any
) -> list[tuple[float, float]]:
    """Two steps of a job that begins with the checkpoint."""
    with script(config):
        training = Training(strategy, **options)
        LOADS[kind](training, Path(folder))
        return training.steps(2, 4)


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


def ranks(config: dict[str, Any]) -> dict[str, Any]:
    with script(config):
        return {
            "rank": tsm.state.rank,
            "rep_rank": tsm.state.ranker.get_rep_rank(dist.get_rank()),
            "rep_groups": tsm.state.ranker.get_rep_groups(),
            "shard": get_global_ranks(tsm.state.rep_rank_process_group),
            "tp": (tsm.state.tp_size, tsm.state.tp_rank),
        }


def half_precision() -> None:
    with script({}):
        FSDP(network().bfloat16())


def different_replicas(config: dict[str, Any], sync: bool) -> bool:
    """A model that each rank draws for itself, wrapped. True if all ranks have the same then."""
    with script(config):
        torch.manual_seed(dist.get_rank())
        model = FSDP(
            nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            sync_module_states=sync,
        )
        with FSDP.summon_full_params(model):
            whole = torch.cat([one.detach().flatten() for one in model.parameters()])
        highest = whole.clone()
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        return torch.equal(whole, highest)


def early_optimizer(orig_params: bool) -> tuple[str, float]:
    """An optimizer of a model that FSDP wraps later: its error, and what its step changed."""
    with script({}):
        plain = network()
        optimizer = torch.optim.AdamW(plain.parameters(), lr=0.1)
        model = FSDP(plain, use_orig_params=orig_params)
        values, wanted = batch(0, 0)
        before = (model(values) - wanted).square().mean()
        before.backward()
        try:
            optimizer.step()
        except SMPConfigError as error:
            return str(error), 0.0
        return "", abs((model(values) - wanted).square().mean().item() - before.item())
