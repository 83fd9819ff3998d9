# SPDX-License-Identifier: Apache-2.0
"""Mistakes in and around the function of a step."""

from __future__ import annotations

import time
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

from tests.mistakes.case import DDP, EVERYWHERE, ONE, PP, SDP, TP, WORKS, error, mistake, warning
from tests.mistakes.frame import batches, eval_step, train, train_step, wrap


@mistake(
    "`loss.backward()` in a step, instead of `model.backward(loss)`",
    (EVERYWHERE, error("call model.backward(loss)")),
)
def torchs_backward_in_a_step() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    model, optimizer = wrap()
    for x, y in batches(3):
        optimizer.zero_grad()
        step(model, x, y)
        optimizer.step()


@mistake(
    "A training step that runs no backward",
    (EVERYWHERE, warning("ran no backward")),
)
def no_backward() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    model, optimizer = wrap()
    for x, y in batches(2):
        step(model, x, y)
        optimizer.step()


@mistake(
    "Backward on the loss that a step returned",
    ((ONE, PP, SDP), error("StepOutput")),
)
def backward_of_the_result() -> None:
    model, _ = wrap()
    loss: Any = train_step(model, *next(batches(1)))
    loss.backward()


@mistake("`loss.item()` of what a step returned", ((ONE, PP), error("reduce_mean()")))
def item_of_the_result() -> None:
    model, _ = wrap()
    loss: Any = train_step(model, *next(batches(1)))
    loss.item()


@mistake("The loss of a step in a format string", ((ONE, PP), error("reduce_mean()")))
def format_of_the_result() -> None:
    model, _ = wrap()
    loss = train_step(model, *next(batches(1)))
    print(f"{loss:.3f}")


@mistake("`optimizer.zero_grad()` inside the step", (EVERYWHERE, error("call it before the step")))
def zero_grad_in_the_step() -> None:
    model, optimizer = wrap()

    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        model.backward(loss)
        return loss

    step(model, *next(batches(1)))


@mistake("`optimizer.step()` inside the step", (EVERYWHERE, error("call it after the step")))
def optimizer_in_the_step() -> None:
    model, optimizer = wrap()

    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        model.backward(loss)
        optimizer.step()
        return loss

    step(model, *next(batches(1)))


@mistake("`zero_grad()` is missing: gradients add up", (EVERYWHERE, warning("zero_grad()")))
def no_zero_grad() -> None:
    model, optimizer = wrap()
    for x, y in batches(2):
        train_step(model, x, y)
        optimizer.step()


@mistake(
    "The model is called outside of a step",
    (PP, error("call it inside a function decorated with smp.step")),
)
def model_outside_of_a_step() -> None:
    model, _ = wrap()
    model.eval()
    with torch.no_grad():
        model(torch.ones(2, 8))


@mistake(
    "Training outside of a step: replicas do not average",
    (DDP, error("smp.step")),
)
def training_outside_of_a_step() -> None:
    model, optimizer = wrap()
    for x, y in batches(2):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@mistake("A step inside a step", (EVERYWHERE, error("eval_step")))
def step_in_a_step() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        eval_step(model, x, y)
        loss = F.cross_entropy(model(x), y)
        model.backward(loss)
        return loss

    model, _ = wrap()
    step(model, *next(batches(1)))


@mistake(
    "A batch that the microbatches do not divide", ((ONE, PP, SDP), error("drop the last batch"))
)
def batch_that_is_not_divisible() -> None:
    model, optimizer = wrap()
    for count in (8, 8, 5):
        optimizer.zero_grad()
        train_step(model, torch.ones(count, 8), torch.zeros(count, dtype=torch.long))
        optimizer.step()


@mistake(
    "A tensor that is no batch is cut into microbatches", ((ONE, PP), warning("non_split_inputs"))
)
def table_that_is_cut() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x + table.mean(0)), y)
        model.backward(loss)
        return loss

    model, _ = wrap()
    step(model, *next(batches(1)), torch.arange(32.0).reshape(4, 8))


@mistake("The DataLoader itself goes into the step", ((ONE, PP), error("pass one batch")))
def loader_in_the_step() -> None:
    @smp.step
    def epoch(model: Any, loader: Any) -> None:
        for x, y in loader:
            model.backward(F.cross_entropy(model(x), y))

    model, _ = wrap()
    data = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.zeros(64, dtype=torch.long))
    epoch(model, torch.utils.data.DataLoader(data, batch_size=8))


@mistake("An iterator over batches goes into the step", ((ONE, PP), error("pass one batch")))
def iterator_in_the_step() -> None:
    @smp.step
    def epoch(model: Any, batches: Any) -> None:
        for x, y in batches:
            model.backward(F.cross_entropy(model(x), y))

    model, _ = wrap()
    epoch(model, batches(4))


@mistake(
    "An argument of a module cannot travel to its partition",
    (PP, error("an argument of module b cannot travel to partition 1")),
    parameters={"auto_partition": False, "default_partition": 0},
)
def argument_that_cannot_travel() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, parts: Any) -> torch.Tensor:
            return sum(parts) * self.scale

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with smp.partition(0):
                self.a = nn.Linear(8, 4)
            with smp.partition(1):
                self.b = Adds()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x) for _ in range(2))

    model, _ = wrap(Net())
    train_step(model, *next(batches(1)))


@mistake(
    "A tensor argument that is not used, an output that is not in the loss", (EVERYWHERE, WORKS)
)
def unused_arguments_and_outputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.a(x)
            return self.b(hidden), hidden.sum(1)

    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out, _ = model(x, torch.ones(len(x), requires_grad=True))
        loss = F.cross_entropy(out, y)
        model.backward(loss)
        return loss

    model, optimizer = wrap(Two())
    for x, y in batches(3):
        optimizer.zero_grad()
        step(model, x, y)
        optimizer.step()


@mistake(
    "A gradient penalty by `torch.autograd.grad` in a step",
    (PP, error("torch.autograd.grad failed inside")),
)
def gradient_penalty() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = F.cross_entropy(out, y) + slope.pow(2).mean()
        model.backward(loss)
        return loss

    model, _ = wrap()
    step(model, *next(batches(1)))


@mistake("Backward twice over one graph", (EVERYWHERE, error("second time")))
def backward_twice() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        model.backward(loss)
        model.backward(loss)
        return loss

    model, _ = wrap()
    step(model, *next(batches(1)))


@mistake("NaN in the loss goes unnoticed", ((ONE, PP, DDP, TP), warning("loss is nan")))
def nan_in_the_loss() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    x, y = next(batches(1))
    x[:] = float("nan")
    optimizer.zero_grad()
    train_step(model, x, y)
    optimizer.step()
    time.sleep(1)  # the log's line of progress comes once a second
    optimizer.zero_grad()
    train_step(model, x, y)
    optimizer.step()


@mistake(
    "`model.train()` is forgotten after `model.eval()`", (EVERYWHERE, warning("model.train()"))
)
def training_in_eval_mode() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    model.eval()
    with torch.no_grad():
        eval_step(model, *next(batches(1)))
    train(model, optimizer, 2)
