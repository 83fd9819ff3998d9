# SPDX-License-Identifier: Apache-2.0
"""Two ranks in calls that wait for each other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn


def different_calls(first: str, second: str) -> None:
    """After a step that both make, rank 0 makes the call ``first`` and rank 1 ``second``."""
    layers = [nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)]
    model = smp.DistributedModel(nn.Sequential(*layers))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def train_step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).sum()
        model.backward(loss)
        return loss

    def step() -> None:
        optimizer.zero_grad()
        train_step(torch.ones(4, 8))
        optimizer.step()

    layer = smp.nn.DistributedLinear(8, 8) if smp.tp_size() > 1 else nn.Linear(8, 8)

    calls: dict[str, Callable[[], object]] = {
        "step": step,
        "state_dict": model.state_dict,
        "barrier": smp.barrier,
        "allgather": lambda: smp.allgather(1, smp.WORLD),
        "layer": lambda: layer(torch.ones(4, 8)),
        "end": lambda: None,
    }
    step()
    calls["layer"]()
    calls[first if smp.rank() == 0 else second]()


if __name__ == "__main__":
    smp.init(json.loads(sys.argv[1]))
    different_calls(*sys.argv[2:])
