# SPDX-License-Identifier: Apache-2.0
"""One of two ranks of ci/bench report: steps of a small pipeline, with and without records, by
turns in one process. Prints the median seconds of a step, of each turn."""

from __future__ import annotations

import json
import os
import tempfile
import time

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

TURNS, WARM, STEPS = 8, 20, 200
LAYERS, WIDTH, MICROBATCHES = 8, 64, 8


@smp.step
def train(model, batch):
    loss = model(batch).pow(2).mean()
    model.backward(loss)
    return loss


def turn() -> float:
    """Median seconds of a step, in a job of its own."""
    smp.init({"partitions": 2, "microbatches": MICROBATCHES, "ddp": True})
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = smp.DistributedModel(nn.Sequential(*layers))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    batch = torch.ones(8 * MICROBATCHES, WIDTH)
    seconds = []
    for _ in range(WARM + STEPS):
        begin = time.perf_counter()
        optimizer.zero_grad()
        train(model, batch)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    smp.shutdown()
    return sorted(seconds[WARM:])[STEPS // 2]


def main() -> None:
    found: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory(prefix="smp-bench-") as folder:
        for number in range(2 * TURNS):
            recorded = number % 2 == 1
            os.environ["SMP_RECORDS"] = folder if recorded else ""
            found["with" if recorded else "without"].append(turn())
    if int(os.environ["OMPI_COMM_WORLD_RANK"]) == 0:
        print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
