# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench bubble: an emulated pipeline of four times as many layers as ranks,
whose gradients of activations and of weights take a time each, ours and PyTorch's, in turn.

    bubble_job.py MICROBATCHES ROUNDS MEMORY WAY CHUNKS SIGMA RECOMPUTES [PEER ...]

CHUNKS: how many groups of layers a rank has; 1 is an ordinary pipeline. WAY: how they go through
the ranks, zigzag (two are a V) or loop.
SIGMA: times are lognormal, with this and the same mean; 0: all alike.
RECOMPUTES: 1 recomputes the activations of each group of layers in its backward; else 0.
Layers compute on emulated devices, so that they overlap on a machine with fewer cores than ranks;
the tensors between them are real and small.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from emulated_device import occupy
from hosts_clock import timed
from torch import nn
from torch.distributed import pipelining
from torch.utils.checkpoint import checkpoint

SECONDS = 0.04  # of a layer's forward, of its activations' gradient, of its weight's
LAYERS_A_RANK = 4
WIDTH, ROWS = 256, 4
FIRST_STEPS = 9  # of ours, in which it decides on the order of work


class Times:
    sigma = 0.0
    random = random.Random()

    @classmethod
    def next(cls) -> float:
        return SECONDS * cls.random.lognormvariate(-cls.sigma * cls.sigma / 2, cls.sigma)


class Kept:
    """Layers of this rank whose activations are kept: from their forward, or, where that is
    repeated in the backward, from then on, up to their weights' gradients."""

    now = most = 0
    recomputes = False

    @classmethod
    def after_forward(cls) -> None:
        if not cls.recomputes or torch._C._current_graph_task_id() != -1:
            cls.add(1)

    @classmethod
    def add(cls, layers: int) -> None:
        cls.now += layers
        cls.most = max(cls.most, cls.now)

    @classmethod
    def begin_step(cls) -> None:
        # PyTorch's schedules in two parts recompute twice, and are counted once.
        cls.now = cls.most = 0


class Activations(torch.autograd.Function):
    """A layer's forward, and its activations' gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        ctx.save_for_backward(weight)
        result = x * weight
        Kept.after_forward()
        occupy(Times.next(), began)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (weight,) = ctx.saved_tensors  # which may recompute first, in a time of its own
        began = time.perf_counter()
        result = gradient * weight
        occupy(Times.next(), began)
        return result, None


class Weight(torch.autograd.Function):
    """Its weight's gradient: a function of its own, so that whoever has schedules for that can ask
    for one without the other."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        began = time.perf_counter()
        result = x.sum(0)
        occupy(Times.next(), began)
        Kept.add(-1)
        return None, result


class Stage(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(WIDTH)) for _ in range(layers))

    def forward(self, x):
        if not x.requires_grad:  # as behind other layers: its gradient is computed
            x = x.detach().requires_grad_()
        if Kept.recomputes:
            return checkpoint(self.layers, x, use_reentrant=False)
        return self.layers(x)

    def layers(self, x):
        for weight in self.weights:
            x = Activations.apply(x, weight.detach()) + Weight.apply(x.detach(), weight)
        return x


@smp.step
def our_step(model, batch):
    output = model(batch)
    model.backward(output.sum())


def make_ours(microbatches: int, way: str, chunks: int) -> Callable[[], None]:
    ranks = list(range(smp.pp_size()))
    back = ranks[::-1] if way == "zigzag" else ranks
    order = [rank for number in range(chunks) for rank in (ranks, back)[number % 2]]
    stages = [Stage(LAYERS_A_RANK // chunks) for _ in order]
    for stage, rank in zip(stages, order, strict=True):
        smp.set_partition(stage, rank)
    model = smp.DistributedModel(nn.Sequential(*stages))
    batch = torch.randn(ROWS * microbatches, WIDTH)
    return lambda: our_step(model, batch)


def make_peer(name: str, microbatches: int) -> Callable[[], None]:
    schedule = getattr(pipelining.schedules, name)
    rank, size = dist.get_rank(), dist.get_world_size()
    example = torch.randn(ROWS, WIDTH, requires_grad=True)  # or torch 2.15 sends no gradient back

    def stage(number: int, stages: int, layers: int) -> pipelining.PipelineStage:
        return pipelining.PipelineStage(
            *(Stage(layers), number, stages, torch.device("cpu")),
            input_args=(example,),
            output_args=(example,),
        )

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return output.sum()

    batch = torch.randn(ROWS * microbatches, WIDTH)
    if issubclass(schedule, pipelining.schedules.PipelineScheduleSingle):
        runner = schedule(stage(rank, size, LAYERS_A_RANK), microbatches, loss_fn=loss)
        has_last = rank == size - 1
    else:
        is_v = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
        second = 2 * size - 1 - rank if is_v else size + rank
        stages = [stage(number, 2 * size, LAYERS_A_RANK // 2) for number in (rank, second)]
        runner = schedule(stages, microbatches, loss_fn=loss)
        has_last = 2 * size - 1 in (rank, second)

    def step() -> None:
        inputs = (batch,) if rank == 0 else ()
        if has_last:
            runner.step(*inputs, target=batch)
        else:
            runner.step(*inputs)

    return step


def main() -> None:
    microbatches, rounds, chunks = (int(sys.argv[place]) for place in (1, 2, 5))
    memory, Times.sigma = float(sys.argv[3]), float(sys.argv[6])
    Kept.recomputes = sys.argv[7] == "1"
    smp.init({"partitions": 4, "microbatches": microbatches, "auto_partition": False,
              "default_partition": 0, "pipeline": "zero_bubble",
              "pipeline_memory": memory})  # fmt: skip
    steps = {"ours": make_ours(microbatches, sys.argv[4], chunks)}
    failed = {}
    for name in sys.argv[8:]:
        try:
            steps[name] = make_peer(name, microbatches)
        except Exception as error:  # a schedule that does not run with these numbers
            failed[name] = f"{type(error).__name__}: {error}"
    Times.random.seed(smp.rank())
    for _ in range(FIRST_STEPS):
        steps["ours"]()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    kept: dict[str, int] = {}
    for number in range(rounds + 1):
        for name, step in steps.items():
            Kept.begin_step()
            took, _ = timed(step)
            most = torch.tensor(Kept.most)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            kept[name] = int(most)
            if number > 0:  # the first round warms up
                seconds[name].append(took)
    if smp.rank() == 0:
        print("RESULT " + json.dumps({"seconds": seconds, "kept": kept, "failed": failed}))


if __name__ == "__main__":
    main()
