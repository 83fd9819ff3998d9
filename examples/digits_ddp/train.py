# SPDX-License-Identifier: Apache-2.0
"""Learns handwritten digits with data parallelism: the backend smddp, else plain PyTorch.

The channel `train` holds digits.csv.gz: 1,797 images of 8 x 8 pixels (UCI, as shipped by
scikit-learn in sklearn/datasets/data), one a line, 64 values from 0 to 16 and the digit. Started by
the launcher, by torchrun, or by hand, as root and on any number of cores:

    export SM_CHANNEL_TRAIN=$(python -c 'import sklearn; print(sklearn.__path__[0])')/datasets/data
    SM_MODEL_DIR=DIR mpirun --allow-run-as-root --oversubscribe -np 4 python train.py

Where GPUs are, each process takes one: start as many. CUDA_VISIBLE_DEVICES= hides them.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(images))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        scores: torch.Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores


def load_digits(folder: str) -> tuple[TensorDataset, TensorDataset]:
    """A fifth is for testing. Neighbours in the file come from one writer: shuffled, alike for all
    ranks."""
    table = np.loadtxt(Path(folder) / "digits.csv.gz", delimiter=",")
    np.random.default_rng(0).shuffle(table)
    images = torch.tensor(table[:, :-1] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    digits = torch.tensor(table[:, -1], dtype=torch.int64)
    split = len(digits) * 4 // 5
    return TensorDataset(images[:split], digits[:split]), TensorDataset(
        images[split:], digits[split:]
    )


def train(
    model: nn.Module,
    loader: DataLoader[tuple[torch.Tensor, ...]],
    optimizer: optim.Optimizer,
    device: torch.device,
) -> float:
    model.train()
    for batch in loader:
        images, digits = (tensor.to(device) for tensor in batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), digits)
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    model.eval()
    images, digits = (tensor.to(device) for tensor in data.tensors)
    guesses: torch.Tensor = model(images).argmax(dim=1)
    return (guesses == digits).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=1.0)
    args = parser.parse_args()

    dist.init_process_group(backend="smddp")
    device = torch.device("cpu")
    if torch.cuda.is_available():  # each process pins a GPU
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    batch_size = max(args.batch_size // size, 1)

    training, testing = load_digits(os.environ["SM_CHANNEL_TRAIN"])
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        training, num_replicas=size, rank=rank
    )
    loader = DataLoader(training, batch_size=batch_size, sampler=sampler)

    model = DistributedDataParallel(Net().to(device))
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.8)
    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train(model, loader, optimizer, device)
        if rank == 0:
            accuracy = test(model.module, testing, device)
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
        scheduler.step()
    if rank == 0:
        folder = Path(os.environ.get("SM_MODEL_DIR", "."))
        torch.save(model.module.state_dict(), folder / "model.pt")
        (folder / "result.json").write_text(json.dumps({"accuracy": accuracy, "ranks": size}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
