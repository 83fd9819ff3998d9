# SPDX-License-Identifier: Apache-2.0
"""The Python job of examples/digits_cpp: the same model, data and order, by the Python package."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.outer(F.gelu(self.inner(self.norm(x))))
        return x + change


def make_net(width: int, depth: int) -> nn.Sequential:
    embed = nn.Linear(64, width)
    shared = Block(width)
    blocks = [Block(width) for _ in range(depth)]
    return nn.Sequential(embed, shared, *blocks, shared, nn.LayerNorm(width), nn.Linear(width, 10))


@smp.step
def train_step(model, images, digits):
    loss = F.cross_entropy(model(images), digits)
    model.backward(loss)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--save", default="true")
    args, _ = parser.parse_known_args()
    batch_size = 64

    smp.init()
    share = batch_size // smp.dp_size()
    torch.manual_seed(0)
    model = smp.DistributedModel(make_net(64, 3))
    optimizer = smp.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
    )
    file = Path(os.environ["SM_CHANNEL_TRAIN"]) / "digits.csv"
    table = torch.tensor(np.loadtxt(file, delimiter=","), dtype=torch.float32)
    images, digits = table[:, :64] / 16, table[:, 64].long()
    generator = torch.Generator().manual_seed(0)
    everything = torch.randperm(len(digits), generator=generator)
    split = len(everything) * 4 // 5 // batch_size * batch_size
    results = Path(os.environ["SM_OUTPUT_DATA_DIR"])
    checkpoints = results.parents[1] / "checkpoints"
    done = smp.resume_from_checkpoint(checkpoints) if (checkpoints / "newest").exists() else 0
    with open(results / f"curve{smp.rank()}.txt", "w") as curve:
        for epoch in range(1, args.epochs + 1):
            order = everything[:split][torch.randperm(split, generator=generator)]
            if epoch <= done:
                continue
            for batch in order.split(batch_size):
                own = batch[smp.dp_rank() * share : (smp.dp_rank() + 1) * share]
                optimizer.zero_grad()
                loss = train_step(model, images[own], digits[own]).reduce_mean()
                optimizer.step()
                curve.write(f"{loss.item():.9g}\n")
            if args.save == "true":
                smp.save_checkpoint(
                    checkpoints, f"epoch-{epoch}", optimizer=optimizer, user_content=epoch
                )


if __name__ == "__main__":
    main()
