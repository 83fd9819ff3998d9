# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench reducer: replicas whose backward sleeps, with our reducer, with PyTorch's
DDP, and without any averaging, by turns. Prints seconds of each step by who."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, BACKWARD_SECONDS, BUCKET_MB = 12, 1024, 0.02, 8


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(BACKWARD_SECONDS)
        return gradient * 1.0


class Layer(nn.Module):
    """4 MiB of parameters, and a backward that takes its time without a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return _Sleep.apply(self.linear(x))


def make_module() -> nn.Module:
    return nn.Sequential(*(Layer() for _ in range(LAYERS)))


@smp.step
def our_step(model, batch):
    model.backward(model(batch).sum())


def make_ours(batch: torch.Tensor) -> Callable[[], None]:
    model = smp.DistributedModel(make_module(), bucket_cap_mb=BUCKET_MB)

    def step() -> None:
        model.zero_grad()
        our_step(model, batch)

    return step


def make_plain(module: nn.Module, batch: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad()
        module(batch).sum().backward()

    return step


def main() -> None:
    rounds = int(sys.argv[1])
    smp.init({"ddp": True, "microbatches": 1})
    torch.set_num_threads(1)
    batch = torch.randn(1, WIDTH)
    peer = DistributedDataParallel(
        make_module(), bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True
    )
    steps = {
        "ours": make_ours(batch),
        "DDP": make_plain(peer, batch),
        "no averaging": make_plain(make_module(), batch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            if number > 1:  # two rounds teach both reducers the order of the gradients
                seconds[name].append(time.perf_counter() - start)
    if smp.rank() == 0:
        print("RESULT " + json.dumps(seconds))


if __name__ == "__main__":
    main()
