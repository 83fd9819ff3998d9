# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_state_fit.py: they save, and resume into what does not fit."""

from __future__ import annotations

from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

WIDTH = 4


def make_optimizer(kind: str, parameters: Any) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    if kind == "groups":
        first, *others = parameters
        return torch.optim.AdamW([{"params": [first]}, {"params": others}], lr=0.1)
    return torch.optim.AdamW(parameters, lr=0.1)


@smp.step
def step(model: Any, x: torch.Tensor) -> None:
    model.backward(model(x).float().square().mean())


def made(kind: str, width: int, steps: int) -> tuple[Any, Any]:
    torch.manual_seed(3)
    split = smp.nn.DistributedLinear if smp.tp_size() > 1 else nn.Linear
    module = nn.Sequential(nn.Linear(WIDTH, width), split(width, WIDTH))
    smp.set_partition(module[1], smp.pp_size() - 1)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer(kind, model.parameters()))
    for _ in range(steps):
        optimizer.zero_grad()
        step(model, torch.ones(4, WIDTH))
        optimizer.step()
    return model, optimizer


def save(folder: str, kind: str) -> None:
    made(kind, WIDTH, 1)
    smp.save_checkpoint(folder, "saved")


def resume(folder: str, kind: str, width: int, steps: int) -> None:
    """Before the first step, or after some."""
    made(kind, width, steps)
    smp.resume_from_checkpoint(folder)
