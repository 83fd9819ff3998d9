# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench activations: equal stages, under both of our schedules and PyTorch's.

Prints by who and stage how many microbatches' activations were alive at once, at most.
"""

from __future__ import annotations

import json
import sys

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from emulated_device import occupy
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WIDTH, ROWS, SECONDS = 32, 2, 0.002
_alive = 0
_peak = 0


class _Token:
    """Lives as long as what autograd keeps of one microbatch in one stage."""

    def __init__(self) -> None:
        global _alive, _peak  # noqa: PLW0603 - of this process
        _alive += 1
        _peak = max(_peak, _alive)

    def __del__(self) -> None:
        global _alive  # noqa: PLW0603
        _alive -= 1


class _Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.token = _Token()
        occupy(SECONDS)
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        occupy(2 * SECONDS)
        return gradient * 1.0


class Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return _Counted.apply(x * self.scale)


@smp.step
def our_step(model, batch):
    model.backward(model(batch).sum())


def peak_of_ours(batch: torch.Tensor) -> int:
    stages = [Stage() for _ in range(smp.pp_size())]
    for index, stage in enumerate(stages):
        smp.set_partition(stage, index)
    model = smp.DistributedModel(nn.Sequential(*stages))
    our_step(model, batch)
    return _taken_peak(lambda: our_step(model, batch))


def peak_of_peer(schedule: type, microbatches: int, batch: torch.Tensor) -> int:
    rank, size = dist.get_rank(), dist.get_world_size()
    example = torch.randn(ROWS, WIDTH, requires_grad=True)  # or torch 2.15 sends no gradient back
    stage = PipelineStage(
        Stage(), rank, size, torch.device("cpu"), input_args=(example,), output_args=(example,)
    )
    runner = schedule(stage, microbatches, loss_fn=lambda output, _: output.sum())
    if rank == 0:
        return _taken_peak(lambda: runner.step(batch))
    if rank == size - 1:
        return _taken_peak(lambda: runner.step(target=batch))
    return _taken_peak(runner.step)


def _taken_peak(step) -> int:
    global _peak  # noqa: PLW0603
    _peak = _alive
    kept = _alive
    step()
    return _peak - kept


def main() -> None:
    microbatches, ranks = int(sys.argv[1]), int(sys.argv[2])
    batch = torch.randn(ROWS * microbatches, WIDTH)
    found: dict[str, list[int]] = {}
    for schedule in ("interleaved", "simple"):
        smp.init(
            {
                "partitions": ranks,
                "microbatches": microbatches,
                "pipeline": schedule,
                "auto_partition": False,
                "default_partition": 0,
            }
        )
        found[schedule] = smp.allgather(peak_of_ours(batch), smp.WORLD)
        if schedule == "interleaved":
            for name, peer in (("1F1B", Schedule1F1B), ("GPipe", ScheduleGPipe)):
                found[name] = smp.allgather(peak_of_peer(peer, microbatches, batch), smp.WORLD)
        first = smp.rank() == 0
        smp.shutdown()
    if first:
        print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
