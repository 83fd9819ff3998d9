"""A script for SageMaker's model-parallel library v1, as it ran on GPU instances."""

import argparse
import os

import numpy as np
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(512, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        return self.head(self.classifier(self.features(images)))


@smp.step
def train_step(model, images, digits):
    loss = nn.functional.cross_entropy(model(images), digits)
    model.backward(loss)
    return loss


@smp.step
def test_step(model, images, digits):
    return (model(images).argmax(dim=1) == digits).float().mean()


def load_digits(folder):
    table = np.loadtxt(os.path.join(folder, "digits.csv.gz"), delimiter=",")
    np.random.default_rng(0).shuffle(table)
    images = torch.tensor(table[:, :-1] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    digits = torch.tensor(table[:, -1], dtype=torch.int64)
    return images, digits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--resume", type=int, default=0)
    args, _ = parser.parse_known_args()

    smp.init()
    torch.manual_seed(1)
    torch.cuda.set_device(smp.local_rank())
    device = torch.device("cuda")

    images, digits = load_digits(os.environ["SM_CHANNEL_TRAIN"])
    own = slice(smp.dp_rank(), 1536, smp.dp_size())
    loader = DataLoader(TensorDataset(images[own], digits[own]), batch_size=32, drop_last=True)

    model = Net().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    model = smp.DistributedModel(model)
    optimizer = smp.DistributedOptimizer(optimizer)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    checkpoint = os.path.join(os.environ["SM_MODEL_DIR"], "checkpoint.pt")
    if args.resume:
        saved = smp.load(checkpoint, partial=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    for epoch in range(args.epochs):
        model.train()
        for batch, target in loader:
            optimizer.zero_grad()
            loss = train_step(model, batch.to(device), target.to(device))
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            right = test_step(model, images[-256:].to(device), digits[-256:].to(device))
        if smp.rank() == 0:
            print(
                f"epoch {epoch}: loss {loss.reduce_mean():.3f}, accuracy {right.reduce_mean():.1%}"
            )

    if smp.dp_rank() == 0:
        state = {"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()}
        smp.save(state, checkpoint, partial=True)


if __name__ == "__main__":
    main()
