# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench pipe and jitter: an emulated pipeline, ours and PyTorch's, in turn.

    pipe_job.py MICROBATCHES ROUNDS STAGES [SIGMA DRAWS]

Stages compute on emulated devices, so that they overlap on a machine with fewer cores than stages;
the tensors between them are real and small. With SIGMA each computation takes its usual time, times
a number drawn lognormally: the same ones for all who are measured, and again after DRAWS rounds.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from emulated_device import multiply
from hosts_clock import timed
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

FORWARD_SECONDS, BACKWARD_SECONDS = 0.02, 0.04
WIDTH, ROWS = 256, 4


class Times:
    """Times of the next computations of this rank."""

    def __init__(self) -> None:
        self.sigma = 0.0
        self.restart(0)

    def restart(self, seed: int) -> None:
        self._forward, self._backward = random.Random(2 * seed), random.Random(2 * seed + 1)

    def forward(self) -> float:
        return FORWARD_SECONDS * self._forward.lognormvariate(0, self.sigma)

    def backward(self) -> float:
        return BACKWARD_SECONDS * self._backward.lognormvariate(0, self.sigma)


TIMES = Times()


class Stage(nn.Module):
    """Takes time; its one parameter makes its backward worth asking for."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return multiply(x, self.scale, TIMES.forward, TIMES.backward)


@smp.step
def our_step(model, batch):
    output = model(batch)
    model.backward(output.sum())


def make_ours(microbatches: int) -> Callable[[], None]:
    stages = [Stage() for _ in range(smp.pp_size())]
    for index, stage in enumerate(stages):
        smp.set_partition(stage, index)
    model = smp.DistributedModel(nn.Sequential(*stages))
    batch = torch.randn(ROWS * microbatches, WIDTH)
    return lambda: our_step(model, batch)


def make_peer(schedule: type, microbatches: int) -> Callable[[], None]:
    rank, size = dist.get_rank(), dist.get_world_size()
    example = torch.randn(ROWS, WIDTH, requires_grad=True)  # or torch 2.15 sends no gradient back
    # Given both ends, the stage need not run once to learn its shapes.
    stage = PipelineStage(
        Stage(), rank, size, torch.device("cpu"), input_args=(example,), output_args=(example,)
    )
    runner = schedule(stage, microbatches, loss_fn=lambda output, target: output.sum())
    batch = torch.randn(ROWS * microbatches, WIDTH)

    def step() -> None:
        if rank == 0:
            runner.step(batch)
        elif rank == size - 1:
            runner.step(target=batch)
        else:
            runner.step()

    return step


def main() -> None:
    microbatches, rounds = int(sys.argv[1]), int(sys.argv[2])
    sigma, draws = (float(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 4 else (0.0, 1)
    TIMES.sigma = sigma
    smp.init(
        {
            "partitions": int(sys.argv[3]),
            "microbatches": microbatches,
            "auto_partition": False,
            "default_partition": 0,
        }
    )
    steps = {
        "ours": make_ours(microbatches),
        "GPipe": make_peer(ScheduleGPipe, microbatches),
        "1F1B": make_peer(Schedule1F1B, microbatches),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            TIMES.restart(1000 * (number % draws + 1) + smp.rank())
            took, _ = timed(step)
            if number > 0:  # the first round warms up
                seconds[name].append(took)
    if smp.rank() == 0:
        print("RESULT " + json.dumps(seconds))


if __name__ == "__main__":
    main()
