# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_scaling.py."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

WIDTH = 6


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Linear(WIDTH, WIDTH)
        self.far = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.far(torch.tanh(self.near(x)))


@smp.step
def scaled_step(model, scaler, x, bad):
    loss = model(x).square().mean()
    if bad:
        loss = loss * float("inf")
    model.backward(scaler.scale(loss))
    return loss


def scale_losses(bad_steps: list[int], steps: int, spoil_rank: int = -1):
    """Scales and whether weights moved, step by step."""
    torch.manual_seed(2)
    module = Pair()
    if smp.pp_size() > 1:
        smp.set_partition(module.far, smp.pp_size() - 1)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = smp.amp.GradScaler(init_scale=64.0, growth_interval=2)
    scales, moved = [], []
    for step in range(steps):
        here = model.local_parameters() if step else model.parameters()  # all, until it is split
        before = {p: p.detach().clone() for p in here}
        optimizer.zero_grad()
        scaled_step(model, scaler, torch.ones(4, WIDTH) * (step + 1), False)
        if step in bad_steps and smp.rank() == spoil_rank:
            for parameter in model.local_parameters():
                parameter.grad.view(-1)[0] = float("nan")
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        moved.append(any(not torch.equal(p, before[p]) for p in model.local_parameters()))
    return scales, moved, scaler.state_dict()


def train_with(name: str, steps: int, spread: bool):
    torch.manual_seed(2)
    module = Pair()
    if spread:
        smp.set_partition(module.far, 1)
    model = smp.DistributedModel(module)
    kind = getattr(smp.optimizers, name)
    made = kind(model.parameters(), lr=0.05, weight_decay=0.1, eps=1e-6)
    optimizer = smp.DistributedOptimizer(made)
    for step in range(steps):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(4, WIDTH, generator=generator)
        scaled_step(model, smp.amp.GradScaler(enabled=False), x * 100, False)
        optimizer.step()
    return model.state_dict(), [group["step"] for group in made.param_groups]
