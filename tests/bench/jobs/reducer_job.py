# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench reducer: replicas on emulated devices, with our reducer, with PyTorch's DDP,
and without any averaging, by turns.

    reducer_job.py BACKWARD_SECONDS

A layer has 1 MiB of parameters, and a backward of that many seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
from emulated_device import compute
from hosts_clock import Measurements
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, BUCKET_MB, ROUNDS = 24, 512, 8, 5
BACKWARD_SECONDS = float(sys.argv[1])


class Layer(nn.Module):
    """1 MiB of parameters, and a backward that takes its time without a processor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return compute(self.linear(x), lambda: 0.0, lambda: BACKWARD_SECONDS)


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
    found = Measurements()
    for number in range(ROUNDS + 2):
        for name, step in steps.items():
            # two rounds teach both reducers the order of the gradients
            found.add(name, step, counts=number > 1)
    found.print_result(layers=LAYERS, bytes=4 * WIDTH * WIDTH)


if __name__ == "__main__":
    main()
