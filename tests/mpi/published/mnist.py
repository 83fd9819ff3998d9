# SPDX-License-Identifier: Apache-2.0
"""Digits, in the way in which scripts of 2020 for one GPU were adapted to the library: mixed
precision, data parallelism, a scheduler on the wrapped optimizer, parts of a checkpoint."""

import argparse
import json
import os
import random

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.amp import autocast
from torch.optim.lr_scheduler import StepLR
from torchnet.dataset import SplitDataset
from torchvision import datasets, transforms


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        return torch.flatten(F.max_pool2d(F.relu(self.conv2(x)), 2), 1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2304, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = Features()
        self.net2 = Classifier()

    def forward(self, x):
        return self.net2(self.net1(x))


@smp.step
def train_step(model, scaler, data, target):
    with autocast("cpu", dtype=torch.bfloat16, enabled=bool(args.amp)):
        output = model(data)
    loss = F.nll_loss(output.float(), target, reduction="mean")
    model.backward(scaler.scale(loss) if args.amp else loss)
    return output, loss


@smp.step
def test_step(model, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="sum").item()
    pred = output.argmax(dim=1, keepdim=True)
    return loss, pred.eq(target.view_as(pred)).sum().item()


def train(model, scaler, device, loader, optimizer, losses):
    model.train()
    for images, digits in loader:
        data, target = images.to(device), digits.to(device)
        optimizer.zero_grad()
        _, loss_mb = train_step(model, scaler, data, target)
        losses.append(loss_mb.reduce_mean().item())
        if args.amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()


def test(model, device, loader):
    model.eval()
    total, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            loss_batch, correct_batch = test_step(model, data.to(device), target.to(device))
            total += sum(loss_batch)
            correct += sum(correct_batch)
    return total / len(loader.dataset), correct / len(loader.dataset)


def main():
    if not torch.cuda.is_available():
        raise ValueError("the script requires CUDA")
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    torch.cuda.manual_seed(1)

    smp.init()
    torch.cuda.set_device(smp.local_rank())
    device = torch.device("cuda")
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    )
    if smp.local_rank() == 0:
        dataset = datasets.MNIST("../data", train=True, download=True, transform=transform)
    smp.barrier()
    dataset = datasets.MNIST("../data", train=True, download=False, transform=transform)
    if smp.dp_size() > 1:
        parts = {f"{i}": 1 / smp.dp_size() for i in range(smp.dp_size())}
        dataset = SplitDataset(dataset, partitions=parts)
        dataset.select(f"{smp.dp_rank()}")
    options = {"batch_size": 64, "num_workers": 1, "pin_memory": True, "shuffle": False}
    train_loader = torch.utils.data.DataLoader(dataset, **options)
    test_set = datasets.MNIST("../data", train=False, transform=transform)
    test_loader = torch.utils.data.DataLoader(test_set, **options)

    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    model = smp.DistributedModel(model)
    scaler = smp.amp.GradScaler()
    optimizer = smp.DistributedOptimizer(optimizer)
    if args.resume:
        saved = smp.load(args.resume, partial=True)
        model.load_state_dict(saved["model_state_dict"])
        optimizer.load_state_dict(saved["optimizer_state_dict"])
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for _ in range(args.epochs):
        train(model, scaler, device, train_loader, optimizer, losses)
        test_loss, accuracy = test(model, device, test_loader)
        scheduler.step()

    if smp.dp_rank() == 0:
        model_dict, opt_dict = model.local_state_dict(), optimizer.local_state_dict()
        smp.save(
            {"model_state_dict": model_dict, "optimizer_state_dict": opt_dict},
            os.path.join(args.out, "checkpoint.pt"),
            partial=True,
        )
    smp.barrier()
    everywhere = smp.allgather((test_loss, accuracy, losses), smp.WORLD)
    if smp.rank() == 0:
        with open(os.path.join(args.out, "results.json"), "w") as file:
            json.dump(everywhere, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", default=".")
    parser.add_argument("--resume", default="")
    parser.add_argument("--amp", type=int, default=0)
    parser.add_argument("--mp_parameters", default="")
    args, _ = parser.parse_known_args()
    main()
