# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench resnet18's peer: ResNet-18 in replicas as programs without DDP average it,
each gradient by an all-reduce of c10d's Gloo after the backward. Gloo's headers do not come with
torch, so the program is Python; operators and all-reduce are those that C++ would call.

    resnet18_gloo_job.py BATCH STEPS
"""

from __future__ import annotations

import json
import sys
import time

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

BATCH, STEPS = int(sys.argv[1]), int(sys.argv[2])


def convolution(before: int, after: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False)


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(before, after, 3, stride)
        self.second = convolution(after, after, 3, 1)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut = nn.Identity() if before == after else nn.Sequential(
            convolution(before, after, 1, stride), nn.BatchNorm2d(after)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.shortcut(x))


def make_net() -> nn.Sequential:
    net = nn.Sequential(convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(),
                        nn.MaxPool2d(3, 2, 1))  # fmt: skip
    width = 64
    for after in (64, 128, 256, 512):
        net.extend([Block(width, after, 1 if width == after else 2), Block(after, after, 1)])
        width = after
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)])


def main() -> None:
    smp.init({"ddp": True})  # for the ranks and their torch.distributed, of Gloo here
    torch.set_num_threads(1)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    images, classes = torch.randn(BATCH, 3, 224, 224), torch.randint(1000, (BATCH,))
    seconds = []
    for _ in range(STEPS):
        dist.barrier()
        begin = time.monotonic()
        optimizer.zero_grad()
        F.cross_entropy(net(images), classes).backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        seconds.append(time.monotonic() - begin)
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
