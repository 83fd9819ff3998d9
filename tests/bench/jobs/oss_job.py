# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench oss: training steps with the optimizer's state sharded by us and by
PyTorch's ZeroRedundancyOptimizer, by turns; seconds of each, and bytes of state by rank."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

ROUNDS, ROWS = 9, 8
WORDS, WIDTH = 40_000, 64  # an embedding with most of the elements, as in language models


class Skewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 1000), nn.ReLU(), nn.Linear(1000, 777), nn.ReLU(), nn.Linear(777, 10)
        )

    def forward(self, tokens):
        return self.layers(self.embed(tokens))


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(
        value.numel() * value.element_size()
        for held in optimizer.state.values()
        for value in held.values()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    )


def make_ours(tokens: torch.Tensor) -> tuple[Callable[[], None], Callable[[], int]]:
    model = smp.DistributedModel(Skewed())
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer = smp.DistributedOptimizer(inner)

    @smp.step
    def train(tokens):
        model.backward(model(tokens).square().mean())

    def step() -> None:
        optimizer.zero_grad()
        train(tokens)
        optimizer.step()

    return step, lambda: state_bytes(inner)


def make_peer(tokens: torch.Tensor) -> tuple[Callable[[], None], Callable[[], int]]:
    model = DistributedDataParallel(Skewed(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3
    )

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()

    return step, lambda: state_bytes(optimizer.optim)


def main() -> None:
    smp.init({"ddp": True, "shard_optimizer_state": True})
    torch.set_num_threads(1)
    tokens = torch.arange(ROWS) + smp.rank()
    made = {"ours": make_ours(tokens), "ZeroRedundancyOptimizer": make_peer(tokens)}
    seconds: dict[str, list[float]] = {who: [] for who in made}
    for turn in range(ROUNDS + 2):
        for who, (step, _) in made.items():
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            if turn > 1:  # the first make state, and teach DDP the order of its gradients
                seconds[who].append(time.perf_counter() - start)
    held = {who: smp.allgather(count(), smp.WORLD) for who, (_, count) in made.items()}
    if smp.rank() == 0:
        found = {who: {"seconds": seconds[who], "bytes": held[who]} for who in made}
        print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
