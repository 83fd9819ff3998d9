# SPDX-License-Identifier: Apache-2.0
"""Times of a training step on smddp and on gloo, by turns: `step_job.py fsdp2|ddp`. Rank 0 prints
the medians of the slowest rank's seconds."""

from __future__ import annotations

import json
import sys
import time

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18

STEPS = 5
WIDTH = 768  # 4 layers of 2.25 MiB: the wire, not the multiplication, takes the time


def fsdp2_on(group: dist.ProcessGroup) -> nn.Module:
    mesh = dist.DeviceMesh.from_group(group, "cpu")
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def ddp_on(group: dist.ProcessGroup) -> nn.Module:
    """ResNet-18, 44.6 MiB of gradients."""
    return DistributedDataParallel(resnet18(), process_group=group)


KINDS = {
    "fsdp2": (fsdp2_on, lambda: torch.randn(4, WIDTH)),
    "ddp": (ddp_on, lambda: torch.randn(2, 3, 64, 64)),
}


def main(kind: str) -> None:
    make, make_data = KINDS[kind]
    dist.init_process_group("smddp")
    groups = {name: dist.new_group(backend=name) for name in ("smddp", "gloo")}
    models = {}
    for name, group in groups.items():
        torch.manual_seed(0)
        models[name] = make(group)
    data = make_data()
    times: dict[str, list[float]] = {name: [] for name in groups}
    for turn in range(STEPS + 1):  # the first one warms up
        for name, model in models.items():
            dist.barrier(groups["gloo"])
            start = time.perf_counter()
            model(data).square().mean().backward()
            took = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX, groups["gloo"])
            model.zero_grad()
            if turn > 0:
                times[name].append(took.item())
    if dist.get_rank() == 0:
        medians = {name: sorted(found)[STEPS // 2] for name, found in times.items()}
        print("RESULT " + json.dumps(medians), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
