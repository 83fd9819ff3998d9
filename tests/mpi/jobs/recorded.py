# SPDX-License-Identifier: Apache-2.0
"""Six steps of two ranks: sharded, tensor or replicas; "killed": rank 1 dies behind the fifth."""

import os
import signal
import sys
import time

import smdistributed.modelparallel.torch as smp
import torch

WAYS = {
    "sharded": {"sharded_data_parallel_degree": 2, "bf16": True, "ddp": True},
    "tensor": {"tensor_parallel_degree": 2, "ddp": True},
    "replicas": {"ddp": True},
}

way = sys.argv[1]
smp.init(WAYS[way])
torch.manual_seed(0)
with smp.tensor_parallelism(enabled=way == "tensor"):
    layers = [torch.nn.Linear(16, 16) for _ in range(3)]
model = smp.DistributedModel(torch.nn.Sequential(*layers))
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))


@smp.step
def train(model, batch):
    loss = model(batch).float().pow(2).mean()
    model.backward(loss)
    return loss


for number in range(6):
    optimizer.zero_grad()
    train(model, torch.ones(8, 16, dtype=torch.bfloat16 if way == "sharded" else torch.float32))
    optimizer.step()
    if "killed" in sys.argv and number == 4:
        time.sleep(1.2)  # records are written at least once a second
    if "killed" in sys.argv and number == 5 and smp.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
