# SPDX-License-Identifier: Apache-2.0
"""Random models with random places for their modules: what ranks do in test_assignments.py, and one
process for comparison."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

WIDTH, ROWS = 6, 64  # 1.5 KiB a microbatch: enough to go straight to the next module


class Whole(nn.Module):
    """A layer, then ``calls`` of children, on top of the argument: whole numbers stay whole, so all
    orders of additions give the same bits, however often a module or an argument is used."""

    def __init__(self, children: list[nn.Module], calls: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.inner = nn.ModuleList(children)
        self.calls = calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.layer(x))
        for call in self.calls:
            y = self.inner[call](y)
        return y + x


class Real(nn.Module):
    """Real numbers. The argument is used once and no module more than twice: then a cut between
    modules changes no association of additions, and bits are those of one process here too."""

    def __init__(self, children: list[nn.Module], calls: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.ModuleList(children)
        self.calls = calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = y = torch.tanh(self.layer(x))
        for call in self.calls:
            y = self.inner[call](y)
        return y + first if self.calls else y


@dataclass
class Draw:
    """All that a seed decides."""

    module: nn.Module
    wanted: dict[str, int]  # partitions by name of module, counted modulo their number
    microbatches: int
    batch: torch.Tensor

    @property
    def whole(self) -> bool:
        return isinstance(self.module, Whole)


def draw(seed: int) -> Draw:
    """The same on every rank and for any number of partitions."""
    dice = random.Random(seed)
    module = random_module(dice, Whole if seed % 2 else Real)
    generator = torch.Generator().manual_seed(seed)
    whole = isinstance(module, Whole)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(values(parameter.shape, whole, generator))
    microbatches = dice.choice([1, 2, 4])  # an average over them is exact
    return Draw(
        module,
        {name: dice.randrange(12) for name, _ in module.named_modules() if dice.random() < 0.7},
        microbatches,
        values((ROWS * microbatches, WIDTH), whole, generator),
    )


def random_module(dice: random.Random, kind: type[Whole] | type[Real]) -> nn.Module:
    """From the leaves up: each but the last is a child of one made later. One leaf is called twice,
    or has two parents; of whole numbers, others may be called twice as well."""
    count = dice.randint(3, 8)
    children: list[list[int]] = [[] for _ in range(count)]
    for number in range(count - 1):
        children[dice.randrange(number + 1, count)].append(number)
    calls = [list(range(len(own))) for own in children]
    parent = next(number for number, own in enumerate(children) if 0 in own)
    if dice.random() < 0.5:
        calls[parent].append(children[parent].index(0))  # a second call of one leaf
    elif parent < count - 1:
        children[-1].append(0)  # a leaf with a second parent
        calls[-1].append(len(children[-1]) - 1)
    if kind is Whole:
        for own, order in zip(children, calls, strict=True):
            order += [dice.randrange(len(own)) for _ in range(dice.randrange(2)) if own]
    made: list[nn.Module] = []
    for own, order in zip(children, calls, strict=True):
        made.append(kind([made[number] for number in own], order))
    return made[-1]


def values(shape: Any, whole: bool, generator: torch.Generator) -> torch.Tensor:
    if whole:
        return torch.randint(-1, 2, shape, generator=generator).double()
    return torch.randn(shape, generator=generator) / WIDTH**0.5


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.sum() if output.dtype == torch.float64 else output.square().mean()


def train_alone(seed: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses by microbatch, and gradients, of one process."""
    torch.set_num_threads(1)  # as the ranks do
    drawn, losses = draw(seed), []
    for part in drawn.batch.chunk(drawn.microbatches):
        loss = loss_of(drawn.module(part))
        loss.backward(torch.full_like(loss, 1 / drawn.microbatches))
        losses.append(loss.item())
    return losses, {name: p.grad for name, p in drawn.module.named_parameters()}


@smp.step
def step(model, batch):
    loss = loss_of(model(batch))
    model.backward(loss)
    return loss


def train(seed: int, steps: int) -> list[tuple[list[float], dict[str, torch.Tensor]]]:
    """The same of each of several steps on one batch, on this rank."""
    drawn, found = draw(seed), []
    for name, partition in drawn.wanted.items():
        smp.set_partition(drawn.module.get_submodule(name), partition % smp.pp_size())
    model = smp.DistributedModel(drawn.module)
    for _ in range(steps):
        model.zero_grad()
        losses = [loss.item() for loss in step(model, drawn.batch).outputs]
        found.append((losses, {name: p.grad for name, p in model.local_named_parameters()}))
    return found
