# SPDX-License-Identifier: Apache-2.0
"""Trains until it is stopped, and saves where `train` says; one that goes on ends after a step."""

from __future__ import annotations

import os

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.utils.data import DataLoader

smp.init()
model = smp.DistributedModel(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)))
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))


@smp.step
def step(x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


folder = os.environ["SM_CHECKPOINT_DIR"]
goes_on = os.path.exists(f"{folder}/newest")
if goes_on:
    smp.resume_from_checkpoint(folder)
# Processes of the script's own, which get what its process group gets.
data = DataLoader(torch.ones(100_000, 8), batch_size=4, num_workers=1)
for batch in data:
    optimizer.zero_grad()
    step(batch)
    optimizer.step()
    print(end=f"rank {smp.rank()} has stepped\n", flush=True)
    if goes_on:
        break
