# SPDX-License-Identifier: Apache-2.0
"""Mistakes with optimizers, schedulers, loss scales and gradients."""

from __future__ import annotations

from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

from tests.mistakes.case import (
    BF16,
    DDP,
    EVERYWHERE,
    FP16,
    ONE,
    PP,
    SDP,
    TP,
    WORKS,
    error,
    mistake,
    warning,
)
from tests.mistakes.frame import (
    batches,
    check_replicas_are_equal,
    net,
    optimizer_of,
    train,
    train_step,
    wrap,
)


@smp.step
def scaled_step(model: Any, scaler: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = F.cross_entropy(model(x), y)
    model.backward(scaler.scale(loss))
    return loss


@mistake(
    "The optimizer is not wrapped, where the library steps its own copies",
    ((BF16, FP16, SDP), error("smp.DistributedOptimizer(")),
)
def optimizer_that_is_not_wrapped() -> None:
    model = smp.DistributedModel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 40)


@mistake(
    "An optimizer of parameters that are not the model's",
    ((ONE, PP, DDP), warning("not the model's")),
    ((BF16, SDP), error("not the model's")),
)
def optimizer_of_other_parameters() -> None:
    model = smp.DistributedModel(net())
    other = net()
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(other.parameters(), lr=0.1))
    train(model, optimizer, 2)


@mistake(
    "Trainable parameters that no optimizer has",
    (EVERYWHERE, warning("no optimizer that has stepped so far has")),
)
def parameters_without_an_optimizer() -> None:
    model = smp.DistributedModel(net())
    some = [value for name, value in model.named_parameters() if not name.endswith("bias")]
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(some))
    train(model, optimizer, 2)


@mistake(
    "A learning rate of 0: the warm-up is never stepped", (EVERYWHERE, warning("learning rate"))
)
def learning_rate_of_zero() -> None:
    model, optimizer = wrap()
    torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda step: step / 100)
    train(model, optimizer, 3)


@mistake(
    "The scheduler is stepped before the optimizer", ((ONE, DDP, SDP), warning("optimizer.step()"))
)
def scheduler_before_the_optimizer() -> None:
    model, optimizer = wrap()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, gamma=0.1)
    for x, y in batches(2):
        scheduler.step()
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


@mistake("A scheduler of the wrapper, not of its optimizer", (EVERYWHERE, WORKS))
def scheduler_of_the_wrapper() -> None:
    model, optimizer = wrap()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    train(model, optimizer, 2)
    scheduler.step()
    assert abs(optimizer.param_groups[0]["lr"] - 1e-3) < 1e-9


@mistake(
    "A GradScaler over an optimizer that has no gradients",
    ((ONE, PP, DDP), error("no parameter of this optimizer has a gradient")),
)
def scaler_without_gradients() -> None:
    model = smp.DistributedModel(net())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(net().parameters(), lr=0.1))
    scaler = smp.amp.GradScaler()
    for x, y in batches(2):
        scaled_step(model, scaler, x, y)
        scaler.step(optimizer)
        scaler.update()


@mistake(
    "`model.half()` together with a GradScaler",
    ((ONE, PP, DDP), error('"fp16": true')),
)
def half_with_a_scaler() -> None:
    model = smp.DistributedModel(net().half())
    optimizer = optimizer_of(model)
    scaler = smp.amp.GradScaler()
    for x, y in batches(2):
        scaled_step(model, scaler, x.half(), y)
        scaler.step(optimizer)
        scaler.update()


@mistake(
    "torch's GradScaler where stages or shards overflow by themselves",
    ((PP, SDP), error("smp.amp.GradScaler")),
)
def torchs_scaler() -> None:
    model, optimizer = wrap()
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches(2):
        optimizer.zero_grad()
        scaled_step(model, scaler, x, y)
        scaler.step(optimizer)
        scaler.update()


@mistake(
    "Arguments of the loss scale without fp16",
    ((ONE, BF16), warning("dynamic_loss_scale")),
)
def loss_scale_without_fp16() -> None:
    model = smp.DistributedModel(net())
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = smp.DistributedOptimizer(inner, dynamic_loss_scale=True)
    train(model, optimizer, 2)


@mistake(
    "torch's `clip_grad_norm_` where a rank has a part of the gradients",
    ((PP, TP), warning("smp.clip_grad_norm_")),
    ((SDP, BF16), error("clip_master_grads")),
)
def torchs_clipping() -> None:
    model, optimizer = wrap()
    for x, y in batches(2):
        optimizer.zero_grad()
        train_step(model, x, y)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()


@mistake(
    "torch's `clip_grad_value_` where masters are stepped",
    ((PP,), WORKS),
    ((SDP, BF16), error("clip_master_values")),
)
def torchs_clipping_of_values() -> None:
    model, optimizer = wrap()
    for x, y in batches(2):
        optimizer.zero_grad()
        train_step(model, x, y)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()


@mistake(
    "Gradients are changed through the model's parameters, where masters are stepped",
    ((PP, DDP), WORKS),
    ((SDP, BF16), error("the gradient of parameter 0.weight was read")),
)
def gradients_of_copies() -> None:
    model, optimizer = wrap()
    for x, y in batches(2):
        optimizer.zero_grad()
        train_step(model, x, y)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)
        optimizer.step()


@mistake(
    "An update before the last of `backward_passes_per_step` steps",
    ((ONE, DDP, SDP), error("before the last of backward_passes_per_step=2")),
)
def update_within_an_accumulation() -> None:
    model = smp.DistributedModel(net(), backward_passes_per_step=2)
    optimizer = optimizer_of(model)
    train(model, optimizer, 1)


@mistake("LBFGS, which runs its closure again and again", ((SDP, PP), error("LBFGS")))
def lbfgs() -> None:
    model = smp.DistributedModel(net())
    optimizer = smp.DistributedOptimizer(torch.optim.LBFGS(model.parameters()))
    x, y = next(batches(1))
    optimizer.step(lambda: train_step(model, x, y).reduce_mean())


@mistake("Frozen and trainable parameters side by side", (EVERYWHERE, WORKS))
def frozen_parameters() -> None:
    module = net()
    module[0].requires_grad_(False)
    before = module[0].weight.detach().clone()
    model = smp.DistributedModel(module)
    trainable = [value for value in model.parameters() if value.requires_grad]
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(trainable))
    train(model, optimizer, 2)
    state = model.state_dict()
    assert torch.equal(state["0.weight"], before), "a frozen parameter moved"


@mistake("A branch of the model that gets no gradient", (EVERYWHERE, WORKS))
def branch_without_gradients() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(self.body(x))

    model, optimizer = wrap(Two())
    train(model, optimizer, 3)


@mistake(
    "`requires_grad` is changed after wrapping", (DDP, WORKS), (SDP, error("requires_grad of"))
)
def unfrozen_after_wrapping() -> None:
    module = net()
    module[0].requires_grad_(False)
    model, optimizer = wrap(module)
    train(model, optimizer, 1)
    before = model.state_dict()["0.weight"].clone()
    model.get_module()[0].requires_grad_(True)
    train(model, optimizer, 2)
    check_replicas_are_equal(model)
    assert not torch.equal(model.state_dict()["0.weight"], before)
