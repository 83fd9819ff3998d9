# SPDX-License-Identifier: Apache-2.0
"""Learns handwritten digits with a model split over processes.

The channel `train` holds digits.csv.gz: 1,797 images of 8 x 8 pixels (UCI, as shipped by
scikit-learn), one a line, 64 values from 0 to 16 and the digit. The job's `mp_parameters` say how
the model is split; the script is the same for any split, and for one process:

    SM_CHANNEL_TRAIN=DIR python train.py
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

Data = tuple[torch.Tensor, torch.Tensor]  # images and their digits


class Block(nn.Module):
    """A residual block: its input is used twice, on whatever process it runs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.outer(F.gelu(self.inner(self.norm(x))))
        return x + change


class DigitNet(nn.Module):
    """`shared` runs twice, before and after the other blocks, with the same parameters."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Linear(64, width)
        self.shared = Block(width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.shared(self.embed(images))
        x = self.shared(self.blocks(x))
        scores: torch.Tensor = self.head(self.norm(x))
        return scores


@smp.step
def train_step(
    model: smp.DistributedModel, images: torch.Tensor, digits: torch.Tensor
) -> torch.Tensor:
    loss = F.cross_entropy(model(images), digits)
    model.backward(loss)
    return loss


@smp.step
def test_step(
    model: smp.DistributedModel, images: torch.Tensor, digits: torch.Tensor
) -> torch.Tensor:
    guesses: torch.Tensor = model(images).argmax(dim=1)
    return (guesses == digits).sum()


def load_digits(folder: str, device: torch.device) -> tuple[Data, Data]:
    """Images scaled to [0, 1], a fifth of them for testing. Neighbours in the file come from one
    writer, so the order is drawn anew, for every run alike."""
    table = np.loadtxt(Path(folder) / "digits.csv.gz", delimiter=",")
    np.random.default_rng(0).shuffle(table)
    images = torch.tensor(table[:, :-1] / 16, dtype=torch.get_default_dtype(), device=device)
    digits = torch.tensor(table[:, -1], dtype=torch.int64, device=device)
    split = len(digits) * 4 // 5
    return (images[:split], digits[:split]), (images[split:], digits[split:])


def mean_over_replicas(loss: torch.Tensor) -> float:
    if smp.dp_size() > 1:
        torch.distributed.all_reduce(loss, group=smp.get_dp_process_group())
    return loss.item() / smp.dp_size()


def train_epoch(
    model: smp.DistributedModel,
    optimizer: smp.DistributedOptimizer,
    data: Data,
    args: argparse.Namespace,
    generator: torch.Generator,
) -> list[float]:
    """One pass in batches of the whole job, of which each replica takes its share."""
    images, digits = data
    share = args.batch_size // smp.dp_size()
    losses = []
    order = torch.randperm(len(digits), generator=generator)
    for batch in order[: len(order) // args.batch_size * args.batch_size].split(args.batch_size):
        own = batch[smp.dp_rank() * share : (smp.dp_rank() + 1) * share].to(images.device)
        optimizer.zero_grad()
        loss = train_step(model, images[own], digits[own])
        optimizer.step()
        losses.append(mean_over_replicas(loss.reduce_mean().detach().clone()))
    return losses


def accuracy(model: smp.DistributedModel, data: Data, microbatches: int) -> float:
    """The share of test images told right; the few that fill no microbatch are left out."""
    images, digits = data
    usable = len(digits) // microbatches * microbatches
    with torch.no_grad():
        right = test_step(model, images[:usable], digits[:usable])
    return right.reduce_sum().item() / usable


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="of the whole job")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mp_parameters", default="", help="read by smp.init from the environment")
    args, _ = parser.parse_known_args()

    smp.init()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(smp.local_rank())
        device = torch.device("cuda", smp.local_rank())
    if args.batch_size % smp.dp_size():
        raise SystemExit(
            f"--batch-size {args.batch_size} is no multiple of {smp.dp_size()} replicas"
        )

    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train_data, test_data = load_digits(os.environ["SM_CHANNEL_TRAIN"], device)
    model = smp.DistributedModel(DigitNet(args.width, args.depth).to(device))
    optimizer = smp.DistributedOptimizer(
        torch.optim.SGD(
            model.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.weight_decay
        )
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    start, curve = time.monotonic(), []
    for epoch in range(1, args.epochs + 1):
        model.train()
        curve += train_epoch(model, optimizer, train_data, args, generator)
        scheduler.step()
        model.eval()
        right = accuracy(model, test_data, smp.state.cfg.microbatches)
        if smp.rank() == 0:
            seconds = time.monotonic() - start
            print(
                f"epoch {epoch:2d}/{args.epochs}  loss {curve[-1]:.4f}  "
                f"test accuracy {right:.1%}  {seconds:5.1f} s",
                flush=True,
            )

    state = model.state_dict()  # on all ranks: it gathers
    if smp.rank() == 0:
        model_dir = Path(os.environ.get("SM_MODEL_DIR", "."))
        torch.save(state, model_dir / "model.pt")
        output_dir = Path(os.environ.get("SM_OUTPUT_DATA_DIR", model_dir))
        (output_dir / "curve.json").write_text(json.dumps({"loss": curve, "accuracy": right}))
        print(f"test accuracy {right:.1%}, model in {model_dir / 'model.pt'}", flush=True)


if __name__ == "__main__":
    main()
