# SPDX-License-Identifier: Apache-2.0
"""``two_hosts_job.py c10d|smddp|pipeline cuda|cpu``: one of the two ranks of two_hosts.py."""

from __future__ import annotations

import json
import sys
import time

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from smdistributed.dataparallel.torch.backend_registration import register
from torch import nn

SMALL, LARGE = 1 << 10, 16 << 20  # [bytes]


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def collectives(backend: str, device: torch.device) -> dict[str, float]:
    """Sums over both ranks, checked, and seconds of one."""
    if backend == "smddp":
        register()
    elif device.type == "cpu":
        backend = "gloo"
    dist.init_process_group(backend)
    rank = dist.get_rank()
    found = {}
    for size in (SMALL, LARGE):
        data = torch.arange(size // 4, device=device, dtype=torch.float32) + rank
        dist.all_reduce(data)
        expected = 2 * torch.arange(size // 4, device=device, dtype=torch.float32) + 1
        assert torch.equal(data, expected), "the sum is wrong"
        begin = now(device)
        for _ in range(10):
            dist.all_reduce(data)
        found[f"all-reduce of {size} bytes"] = (now(device) - begin) / 10
    dist.destroy_process_group()
    return found


class Echo(nn.Module):
    """A stage whose call is the travel there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = Echo(), Echo()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.near(x) + self.far(x)


@smp.step
def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).sum()
    model.backward(loss)
    return loss


def pipeline(device: torch.device) -> dict[str, float]:
    """Calls of a module of the other rank, forward and backward, and their seconds."""
    smp.init(
        {
            "pipeline_parallel_degree": 2,
            "auto_partition": False,
            "default_partition": 0,
            "ddp": True,
            "ddp_dist_backend": "gloo",  # the card is shared: only our links are to meet NCCL
        }
    )
    module = Pair()
    smp.set_partition(module.far, 1)
    model = smp.DistributedModel(module)
    found = {}
    for size in (SMALL, LARGE):
        x = torch.ones(size // 4, device=device)
        loss = step(model, x).reduce_mean().item()
        assert loss == 2 * (size // 4), f"the loss is {loss}"
        begin = now(device)
        for _ in range(10):
            step(model, x)
        found[f"step with a remote call of {size} bytes"] = (now(device) - begin) / 10
    return found


def main(case: str, kind: str) -> None:
    device = torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(0)
    if case == "pipeline":
        found = pipeline(device)
    else:
        found = collectives({"c10d": "nccl"}.get(case, case), device)
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
