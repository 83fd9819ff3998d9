# SPDX-License-Identifier: Apache-2.0
"""In the first attempt a rank ends in the middle of the training; the second attempt's pipeline
uses the same store."""

from __future__ import annotations

import os

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

smp.init({"partitions": 2, "microbatches": 2, "auto_partition": False, "default_partition": 0})
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
smp.set_partition(net[1], 1)
model = smp.DistributedModel(net)
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))


@smp.step
def step(model: smp.DistributedModel, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).mean()
    model.backward(loss)
    return loss


for number in range(3):
    step(model, torch.ones(4, 4))
    optimizer.step()
    if number == 1 and smp.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os._exit(3)
print(
    f"rank {smp.rank()} is through in start {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True
)
