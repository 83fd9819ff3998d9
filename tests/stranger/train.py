# SPDX-License-Identifier: Apache-2.0
"""A script of a user: two pipeline stages, and two hosts' worth of the backend."""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
scale = parser.parse_known_args()[0].scale

smp.init({"partitions": 2, "microbatches": 2})
torch.manual_seed(0)
model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))


@smp.step
def step(model, inputs):
    loss = model(inputs).square().mean()
    model.backward(loss)
    return loss


for _ in range(3):
    optimizer.zero_grad()
    loss = step(model, torch.ones(4, 4) * scale).reduce_mean().item()
    optimizer.step()
if smp.rank() == 0:
    print(f"torch {torch.__version__}, size {smp.size()}, loss {loss:.6f}", flush=True)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "done"), "w") as file:
        file.write(f"{loss:.6f}")
