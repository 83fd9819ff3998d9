# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench bytes: 24 layers over the ranks, ours and PyTorch's pipelining. Prints the
bytes that all ranks together send in one step, by who."""

from __future__ import annotations

import json
import sys

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

LAYERS, WIDTH, ROWS = 24, 256, 32


class Mean(nn.Module):
    """The loss, on the last stage as in PyTorch's schedules."""

    def forward(self, x):
        return x.square().mean().reshape(1)


@smp.step
def our_step(model, batch):
    loss = model(batch)
    model.backward(loss)
    return loss


def layers_of(rank: int, size: int) -> range:
    return range(rank * LAYERS // size, (rank + 1) * LAYERS // size)


def bytes_of_ours(microbatches: int, listed: bool) -> int:
    size = smp.pp_size()
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    for rank in range(size):
        for index in layers_of(rank, size):
            smp.set_partition(layers[index], rank)
    loss = Mean()
    smp.set_partition(loss, size - 1)
    model = smp.DistributedModel(Loop([*layers, loss]) if listed else nn.Sequential(*layers, loss))
    batch = torch.randn(ROWS * microbatches, WIDTH)
    for _ in range(2):
        our_step(model, batch)
    return smp.state.require_engine().last_step().bytes_sent


class Loop(nn.Module):
    """The same layers as many models have them, in a list."""

    def __init__(self, layers) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def bytes_of_peer(microbatches: int) -> int:
    rank, size = dist.get_rank(), dist.get_world_size()
    example = torch.randn(ROWS, WIDTH, requires_grad=True)  # or torch 2.15 sends no gradient back
    stage = PipelineStage(
        nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in layers_of(rank, size))),
        rank,
        size,
        torch.device("cpu"),
        input_args=(example,),
        output_args=(example,),
    )
    runner = Schedule1F1B(stage, microbatches, loss_fn=lambda output, _: output.square().mean())
    sent = 0
    make = dist.P2POp.__init__

    def counting(operation, op, tensor, *arguments, **named):
        nonlocal sent
        sent += tensor.nbytes if op is dist.isend else 0
        make(operation, op, tensor, *arguments, **named)

    dist.P2POp.__init__ = counting
    batch = torch.randn(ROWS * microbatches, WIDTH)
    if rank == 0:
        runner.step(batch)
    elif rank == size - 1:
        runner.step(target=batch)
    else:
        runner.step()
    dist.P2POp.__init__ = make
    return sent


def main() -> None:
    microbatches = int(sys.argv[1])
    settings = {
        "partitions": int(sys.argv[2]),
        "microbatches": microbatches,
        "auto_partition": False,
        "default_partition": 0,
    }
    found = {}
    for name, listed in (("ours, nn.Sequential", False), ("ours, nn.ModuleList", True)):
        smp.init(settings)
        found[name] = sum(smp.allgather(bytes_of_ours(microbatches, listed), smp.WORLD))
        if not listed:
            found["PyTorch 1F1B"] = sum(smp.allgather(bytes_of_peer(microbatches), smp.WORLD))
        first = smp.rank() == 0
        smp.shutdown()
    if first:
        print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
