# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker*.py: scripts of SMP v2 in small that train, on the ranks of a
pool."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from smdistributed.modelparallel.torch.exceptions import SMPConfigError
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    offload_wrapper,
)
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
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
        if offload:
            apply_activation_checkpointing(self.fsdp, check_fn=lambda one: isinstance(one, Block))
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

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """What the optimizer keeps, whole, on all ranks."""
        found = FSDP.full_optim_state_dict(self.model, self.optimizer, rank0_only=False)["state"]
        return {
            f"{name}.{field}": value.clone()
            for name, fields in found.items()
            for field, value in fields.items()
        }

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
