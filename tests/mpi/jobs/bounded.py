# SPDX-License-Identifier: Apache-2.0
"""A job of two ranks that one thing holds up: `bounded.py FAULT`, or without it nothing. Layers
sleep, as on devices of their own, so that ranks do not wait for this machine's processors."""

import sys
import time

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

FORWARD, WIDTH = 0.004, 16
STEPS = {"memory growth": 250}  # 12 s of layers' sleep: as long as it takes to be sure
SETTINGS = {
    "partition": {"partitions": 2, "microbatches": 8, "auto_partition": False,
                  "default_partition": 0},
    "bubble": {"partitions": 2, "microbatches": 1, "auto_partition": False,
               "default_partition": 0},
    "overflows": {"ddp": True, "fp16": True, "shard_optimizer_state": True},
}  # fmt: skip


class Slept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient * 1, None


class Layer(nn.Module):
    """Layer whose backward takes twice as long as its forward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.seconds = seconds

    def forward(self, x):
        return Slept.apply(self.linear(x), self.seconds)


@smp.step
def train_step(model, batch, scale):
    loss = model(batch).float().pow(2).mean() * scale
    model.backward(loss)
    return loss


def make_layers(fault: str) -> list[nn.Module]:
    slow = 2 if fault == "slow rank" and smp.rank() == 1 else 1
    layers = [Layer(slow * FORWARD) for _ in range(4)]
    if fault in ("partition", "bubble"):  # the second has one layer of four, or two
        for layer in layers[3 if fault == "partition" else 2 :]:
            smp.set_partition(layer, 1)
    if fault == "network":  # 8 MB of gradients
        layers.append(nn.Sequential(nn.Linear(WIDTH, 131072), nn.Linear(131072, 1)))
    return layers


def main(fault: str) -> None:
    smp.init(SETTINGS.get(fault, {"ddp": True}))
    torch.manual_seed(0)
    fp16 = fault == "overflows"
    model = smp.DistributedModel(nn.Sequential(*make_layers(fault)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    optimizer = smp.DistributedOptimizer(optimizer, **({"static_loss_scale": 1.0} if fp16 else {}))
    batch = torch.ones(16, WIDTH, dtype=torch.float16 if fp16 else torch.float32)
    kept = []
    steps = STEPS.get(fault, 25)
    for step in range(steps):
        if fault == "data":
            time.sleep(0.03)
        if fault == "memory growth":
            kept.append(torch.ones(500_000))
        if fault == "failed" and step == steps - 1 and smp.rank() == 1:
            raise ValueError("no more of this")
        optimizer.zero_grad()
        train_step(model, batch, 1e30 if fp16 else 1.0)
        optimizer.step()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
