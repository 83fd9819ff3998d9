# SPDX-License-Identifier: Apache-2.0
"""Trains a model in stages of torch.distributed.pipelining, cut where smp.partition says.

torchrun --nproc-per-node 2 train.py
"""

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline

WIDTH, MICROBATCHES = 32, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(F.gelu(self.up(self.norm(x))))
        return x + y


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        scores: torch.Tensor = self.head(x)
        return scores


def loss_of(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


def main() -> None:
    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # all ranks make the same model
    model = Model()
    tokens = torch.randint(0, 64, (MICROBATCHES * 2, 16))
    example = tokens[:2]  # of one microbatch

    names = smp.partition(model, example, stages)
    if rank == 0:
        print(f"stages begin with {', '.join(names)}", flush=True)

    cut = pipeline(model, (example,), split_spec=dict.fromkeys(names, SplitPoint.BEGINNING))
    stage = cut.build_stage(rank, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(stage.submod.parameters(), lr=0.01)
    for step in range(1, 21):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        inputs = (tokens,) if rank == 0 else ()
        if rank == stages - 1:
            schedule.step(*inputs, target=tokens, losses=losses)
        else:
            schedule.step(*inputs)
        optimizer.step()
        if losses and step % 5 == 0:
            print(f"step {step}: loss {torch.stack(losses).mean():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
