# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench v2: a step of FSDP1 with shards of DEGREE ranks, as a script of SMP v2 makes
it over smddp and as PyTorch does over gloo, by turns.

    v2_step_job.py DEGREE
"""

from __future__ import annotations

import math
import sys
import warnings

import smdistributed.dataparallel.torch.torch_smddp
import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from hosts_clock import Measurements
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

STEPS = 5
WIDTH, LAYERS = 768, 4  # of 2.25 MiB: the wire, not the multiplication, takes the time


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def ours(degree: int) -> nn.Module:
    tsm.init({"hybrid_shard_degree": degree})
    model = FSDP(
        network(),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
    )
    tsm.state.reset()  # what follows is PyTorch's
    return model


def theirs(degree: int) -> nn.Module:
    size = dist.get_world_size()
    shards = [list(range(first, first + degree)) for first in range(0, size, degree)]
    copies = [list(range(first, size, degree)) for first in range(degree)]
    own = []
    for groups in (shards, copies):
        made = [(ranks, dist.new_group(ranks, backend="gloo")) for ranks in groups]
        own += [group for ranks, group in made if dist.get_rank() in ranks]
    return FSDP(
        network(),
        (own[0], own[1]),
        ShardingStrategy.HYBRID_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
    )


def main() -> None:
    warnings.simplefilter("ignore")  # torch's, of FSDP1 as a whole
    dist.init_process_group("smddp")
    degree = int(sys.argv[1])
    models = {"smddp": ours(degree), "gloo": theirs(degree)}
    data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    found, losses = Measurements(), dict.fromkeys(models, 0.0)
    for turn in range(STEPS + 1):
        for name, model in models.items():

            def step(name: str = name, model: nn.Module = model) -> None:
                loss = model(data).square().mean()
                loss.backward()
                losses[name] = loss.item()

            found.add(name, step, counts=turn > 0)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(parameter.grad)
            model.zero_grad()
    assert math.isclose(losses["smddp"], losses["gloo"], rel_tol=1e-5), losses
    found.print_result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
