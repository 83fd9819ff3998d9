# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_direct_exchange.py: loops over layers of other partitions, whose code does this and
that with what the layers return."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
from jobs.sharded_model_jobs import resident_bytes
from torch import nn

LAYERS, WIDTH, ROWS, MICROBATCHES, STEPS = 8, 16, 32, 4, 4


class Loop(nn.Module):
    """``habit`` says what happens between two layers."""

    def __init__(self, habit: str) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        with torch.no_grad():  # whole numbers: the same bits in any order of additions
            for parameter in self.layers.parameters():
                parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
        self.habit, self.calls, self.kept, self.gradients = habit, 0, [], []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        call = self.calls  # calls of other microbatches come in between
        seen = []
        for number, layer in enumerate(self.layers):
            y = layer(x)
            assert isinstance(y, torch.Tensor) and y.shape == x.shape
            assert y.requires_grad == torch.is_grad_enabled()
            seen.append(y)
            match self.habit:
                case "residual":
                    y = y + x
                case "sometimes" if call % 3 == 2:
                    y = y.clamp(-50, 50)
                case "in_place":
                    y.add_(1)
                case "two_users" if number % 2:
                    y = self.layers[-number](y) + layer(y)
                case "hook":
                    y.register_hook(lambda gradient: gradient * 2)
                case "kept_gradient":
                    y.retain_grad()
                    self.gradients.append(y)
                case "without_gradient":
                    with torch.no_grad():
                        y.mul_(2)
            x = y
        if self.habit == "all_states":
            return torch.stack(seen).sum(0)
        if self.habit == "kept":
            self.kept += seen
        return x


@smp.step
def our_step(model, batch):
    loss = model(batch).sum()
    model.backward(loss)
    return loss


def distributed(habit: str):
    """The model, its consecutive layers on consecutive partitions, and the module in it."""
    module = Loop(habit).double()
    for number, layer in enumerate(module.layers):
        smp.set_partition(layer, number * smp.pp_size() // LAYERS)
    return smp.DistributedModel(module), module


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(6)
    shape = (ROWS * MICROBATCHES, WIDTH)
    return [torch.randint(-1, 2, shape, generator=generator).double() for _ in range(STEPS)]


def train_alone(habit: str):
    """Losses and gradients of one process, and what the module kept."""
    module, losses = Loop(habit).double(), []
    for batch in batches():
        for part in batch.chunk(MICROBATCHES):
            loss = module(part).sum()
            (loss / MICROBATCHES).backward()
            losses.append(loss.item())
    return losses, {name: p.grad for name, p in module.named_parameters()}, _looks(module)


def train(habit: str):
    """Losses, gradients of this rank's parameters, what the model kept, and the bytes that all
    ranks sent in each step."""
    model, module = distributed(habit)
    losses, sent = [], []
    for batch in batches():
        loss = our_step(model, batch)
        losses += [one.item() for one in loss.outputs]
        engine = smp.state.require_engine()
        sent.append(sum(smp.allgather(engine.last_step().bytes_sent, smp.WORLD)))
    gradients = {name: p.grad for name, p in model.local_named_parameters()}
    return losses, gradients, _looks(module) if smp.rank() == 0 else None, sent


def _looks(module: Loop):
    """At what the model kept of earlier microbatches; in the order of the calls, which pipelines
    change."""
    kept = sorted((tensor.detach().sum().item() for tensor in module.kept), key=float)
    gradients = sorted((t.grad.abs().sum().item() for t in module.gradients), key=float)
    return kept, gradients


def evaluate():
    """Outputs without gradients."""
    model, _ = distributed("none")

    @smp.step
    def forward(model, batch):
        return model(batch)

    with torch.no_grad():
        return [forward(model, batch).concat() for batch in batches()]


def watch_memory(steps: int, every: int):
    """Resident memory after each `every` steps."""
    model, _ = distributed("none")
    batch = batches()[0]
    found = []
    for number in range(1, steps + 1):
        our_step(model, batch)
        if number % every == 0:
            found.append(resident_bytes())
    return found


class Failing(nn.Module):
    def forward(self, x):
        raise ValueError("layer fails on purpose")


def fail_behind_a_remote_tensor():
    """The last layer fails in the second step, when its argument is remote for the caller."""
    model, module = distributed("none")
    our_step(model, batches()[0])
    last = module.layers[-1]
    if smp.rank() == smp.pp_size() - 1:
        last.__dict__["forward"] = Failing().forward
    try:
        our_step(model, batches()[1])
    except (smp.exceptions.SMPStepError, ValueError) as error:
        text = str(error)
    if smp.rank() == smp.pp_size() - 1:
        last.__dict__["forward"] = last.__dict__["_orig_forward"]
    return text, our_step(model, batches()[2]).reduce_mean().item()
