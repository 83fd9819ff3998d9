# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel and ZeroRedundancyOptimizer on smddp, on warm ranks.

Weights and inputs are small whole numbers and replicas a power of two, so that sums and means are
exact: gradients are those of one process and of gloo bit by bit, whatever the order of the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from smdistributed.dataparallel.torch import backend_registration
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

backend_registration.register()  # torch_smddp would set variables that the next smp.init reads

#: Gradients of one turn, by name of the parameter; None where no rank had any.
Gradients = dict[str, "torch.Tensor | None"]
WIDTH = 6
TINY_MB = 100 / 2**20  # less than a parameter: a bucket for each


def whole_numbers(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    return module


def batch(rank: int, turn: int, width: int = WIDTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * turn + rank)
    return torch.randint(-3, 4, (4, width), generator=generator).float()


class Branches(nn.Module):
    """A sum of layers, of which each call takes some; gradients do not depend on weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, 2 + number) for number in range(4))

    def forward(self, inputs: torch.Tensor, taken: tuple[int, ...]) -> torch.Tensor:
        return sum(self.layers[number](inputs).sum() for number in taken)


class Chain(nn.Module):
    """One layer twice, one of another type, and one that nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 5)
        self.twice = nn.Linear(5, 5)
        self.last = nn.Linear(5, 2).double()
        self.never = nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        middle = self.twice(self.twice(torch.relu(self.first(inputs))))
        return self.last(middle.double()).sum()


def all_branches(model: nn.Module, rank: int, turn: int) -> torch.Tensor:
    return model(batch(rank, turn), (0, 1, 2, 3))


def some_branches(model: nn.Module, rank: int, turn: int) -> torch.Tensor:
    """The last layer is nobody's; the others are those of one rank or of several."""
    taken = {(rank + turn) % 3, turn % 2}
    return model(batch(rank, turn), tuple(sorted(taken)))


def chain(model: nn.Module, rank: int, turn: int) -> torch.Tensor:
    return model(batch(rank, turn))


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    loss: Callable[[nn.Module, int, int], torch.Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    hook: Callable[..., Any] | None = None
    passes: int = 1  # backwards until the ranks meet; all but the last under no_sync()


CASES = {
    "one bucket": Case(Branches, all_branches),
    "a bucket each": Case(Branches, all_branches, {"bucket_cap_mb": TINY_MB}),
    "unused parameters": Case(Branches, some_branches, {"find_unused_parameters": True}),
    "views of buckets": Case(
        Branches, some_branches, {"find_unused_parameters": True, "gradient_as_bucket_view": True}
    ),
    "static graph": Case(Chain, chain, {"static_graph": True}),
    "static graph in small buckets": Case(
        Chain, chain, {"static_graph": True, "bucket_cap_mb": TINY_MB}
    ),
    "accumulated": Case(Branches, all_branches, passes=3),
    "accumulated, unused": Case(
        Branches, some_branches, {"find_unused_parameters": True}, passes=3
    ),
    "accumulated, views of buckets": Case(
        Branches, all_branches, {"gradient_as_bucket_view": True}, passes=2
    ),
    "hook: allreduce": Case(Branches, all_branches, hook=default_hooks.allreduce_hook),
    "hook: fp16": Case(Branches, all_branches, hook=default_hooks.fp16_compress_hook),
    "hook: bf16": Case(
        Branches, all_branches, {"bucket_cap_mb": TINY_MB}, hook=default_hooks.bf16_compress_hook
    ),
}
TURNS = 3


def backwards(case: Case, model: nn.Module, rank: int, turn: int) -> None:
    for number in range(case.passes):
        last = number == case.passes - 1
        with nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync():
            case.loss(model, rank, turn * case.passes + number).backward()


def take_gradients(model: nn.Module) -> Gradients:
    taken = {
        name.removeprefix("module."): None if one.grad is None else one.grad.clone()
        for name, one in model.named_parameters()
    }
    model.zero_grad()
    return taken


def alone(name: str, size: int) -> list[Gradients]:
    """Gradients that one process makes of the batches of all."""
    case, model = CASES[name], whole_numbers(CASES[name].make())
    turns = []
    for turn in range(TURNS):
        for rank in range(size):
            backwards(case, model, rank, turn)
        found = take_gradients(model)
        turns.append({key: None if one is None else one / size for key, one in found.items()})
    return turns


def replicated(name: str, group: dist.ProcessGroup) -> list[Gradients]:
    case = CASES[name]
    model = DistributedDataParallel(whole_numbers(case.make()), process_group=group, **case.options)
    if case.hook is not None:
        model.register_comm_hook(group, case.hook)
    turns = []
    for turn in range(TURNS):
        backwards(case, model, group.rank(), turn)
        turns.append(take_gradients(model))
    return turns


def on_both(train: Callable[[dist.ProcessGroup], Any]) -> dict[str, Any]:
    return {name: train(dist.new_group(backend=name)) for name in ("smddp", "gloo")}


def gradients(names: list[str]) -> dict[str, dict[str, list[Gradients]]]:
    """By case and backend."""
    return {name: on_both(lambda group, name=name: replicated(name, group)) for name in names}


def unequal_inputs(batches: list[int]) -> dict[str, dict[str, torch.Tensor]]:
    """Rank r has `batches[r]` batches; parameters at the end, by backend."""

    def train(group: dist.ProcessGroup) -> dict[str, torch.Tensor]:
        model = DistributedDataParallel(whole_numbers(Branches()), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        with Join([model]):
            for turn in range(batches[group.rank()]):
                optimizer.zero_grad()
                all_branches(model, group.rank(), turn).backward()
                optimizer.step()
        return {name: value.clone() for name, value in model.module.state_dict().items()}

    return on_both(train)


def unequal_inputs_alone(batches: list[int]) -> dict[str, torch.Tensor]:
    """The mean is over all ranks, whether they have a batch or not."""
    model = whole_numbers(Branches())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for turn in range(max(batches)):
        optimizer.zero_grad()
        for rank, count in enumerate(batches):
            if turn < count:
                (all_branches(model, rank, turn) / len(batches)).backward()
        optimizer.step()
    return model.state_dict()


def early_end() -> str:
    """Error on a rank when another one has run out of batches."""
    group = dist.new_group(backend="smddp")
    model = DistributedDataParallel(whole_numbers(Branches()), process_group=group)
    try:
        with Join([model], throw_on_early_termination=True):
            for turn in range(2 + group.rank()):
                all_branches(model, group.rank(), turn).backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


def normalized() -> dict[str, list[dict[str, torch.Tensor]]]:
    """Buffers of a BatchNorm behind each forward; ranks start with statistics of their own."""

    def train(group: dist.ProcessGroup) -> list[dict[str, torch.Tensor]]:
        model = DistributedDataParallel(nn.BatchNorm1d(3, momentum=0.5), process_group=group)
        model.module.running_mean.fill_(float(1 + group.rank()))
        turns = []
        for turn in range(2):
            model(batch(group.rank(), turn, 3)).sum().backward()
            turns.append({name: one.clone() for name, one in model.module.named_buffers()})
        return turns

    return on_both(train)


def normalized_alone(size: int) -> list[list[dict[str, torch.Tensor]]]:
    """By rank and turn: each forward starts with what rank 0 has."""
    first = nn.BatchNorm1d(3, momentum=0.5)
    first.running_mean.fill_(1.0)
    ranks: list[list[dict[str, torch.Tensor]]] = [[] for _ in range(size)]
    for turn in range(2):
        start = {name: one.clone() for name, one in first.state_dict().items()}
        for rank in reversed(range(size)):  # rank 0 last: it goes on
            first.load_state_dict(start)
            first(batch(rank, turn, 3))
            ranks[rank].append({name: one.clone() for name, one in first.named_buffers()})
    return ranks


def sharded_optimizer(kind: str, views: bool) -> dict[str, Any]:
    """Parameters after some steps, and on rank 0 the state of all, by backend."""

    def train(group: dist.ProcessGroup) -> Any:
        model = DistributedDataParallel(whole_numbers(Branches()), process_group=group)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(),
            optimizer_class=getattr(torch.optim, kind),
            process_group=group,
            parameters_as_bucket_view=views,
            lr=0.125,
        )
        for turn in range(TURNS):
            optimizer.zero_grad()
            all_branches(model, group.rank(), turn).backward()
            optimizer.step()
        optimizer.consolidate_state_dict(to=0)
        state = optimizer.state_dict()["state"] if group.rank() == 0 else {}
        return {name: value.clone() for name, value in model.module.state_dict().items()}, state

    return on_both(train)


def sharded_optimizer_alone(kind: str, size: int) -> dict[str, torch.Tensor]:
    model = whole_numbers(Branches())
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.125)
    for turn in range(TURNS):
        optimizer.zero_grad()
        for rank in range(size):
            (all_branches(model, rank, turn) / size).backward()
        optimizer.step()
    return model.state_dict()


def other_models() -> str:
    """Error on a rank when its model is not that of the others."""
    group = dist.new_group(backend="smddp")
    layers = [nn.Linear(WIDTH, 3) for _ in range(2 if group.rank() == 1 else 1)]
    try:
        DistributedDataParallel(nn.Sequential(*layers), process_group=group)
    except RuntimeError as error:
        return str(error)
    return "no error"
