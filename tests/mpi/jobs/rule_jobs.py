# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_rules.py."""

from __future__ import annotations

import contextvars
import threading

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

WIDTH = 4


class Remote(nn.Module):
    """A caller, and a module of partition 1 that does `what` to its argument."""

    def __init__(self, far: nn.Module) -> None:
        super().__init__()
        self.near = nn.Linear(WIDTH, WIDTH)
        self.far = far
        smp.set_partition(far, 1)


class Returning(nn.Module):
    def __init__(self, make) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.make = make

    def forward(self, x, *_others):
        return self.make(x * self.weight)


@smp.step
def forward_step(model, x):
    return model(x)


LANGUAGE: contextvars.ContextVar[str] = contextvars.ContextVar("LANGUAGE", default="none")
LEFT_BEHIND: contextvars.ContextVar[str] = contextvars.ContextVar("LEFT_BEHIND", default="none")


class CountsProducts(TorchFunctionMode):
    products = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.products += func is torch.Tensor.mul
        return func(*args, **(kwargs or {}))


def contexts():
    """Context variables that the remote module saw, which leaves one behind, and the products that
    a mode of its rank's main thread counted."""
    seen = []

    def look(x):
        seen.append((LANGUAGE.get(), LEFT_BEHIND.get()))
        LEFT_BEHIND.set("by a microbatch")
        return x

    class Caller(Remote):
        def forward(self, x):
            return self.far(self.near(x))

    model = smp.DistributedModel(Caller(Returning(look)))
    token = LANGUAGE.set("Latin")
    with CountsProducts() as mode:
        forward_step(model, torch.ones(2, WIDTH))
    LANGUAGE.reset(token)
    return seen, mode.products


def send_a_lock():
    class Caller(Remote):
        def forward(self, x):
            return self.far(self.near(x), threading.Lock())

    forward_step(smp.DistributedModel(Caller(Returning(lambda x: x))), torch.ones(2, WIDTH))


def return_a_lock():
    class Caller(Remote):
        def forward(self, x):
            return self.far(self.near(x))[0]

    far = Returning(lambda x: (x, threading.Lock()))
    forward_step(smp.DistributedModel(Caller(far)), torch.ones(2, WIDTH))


@smp.step
def give_back(model, x):
    return {"loss": model(x), "kept": ("name", threading.Lock())}


def give_a_lock_back():
    class Caller(Remote):
        def forward(self, x):
            return self.far(self.near(x))

    give_back(smp.DistributedModel(Caller(Returning(lambda x: x))), torch.ones(2, WIDTH))


def gradient_of_a_step(average: bool):
    """Gradient of a batch's sum over microbatches, with the reducer averaging over replicas."""
    torch.manual_seed(0)
    model = smp.DistributedModel(
        nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 1, bias=False)),
        average_grads_across_microbatches=average,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1)

    @smp.step
    def step(model, x):
        model.backward(model(x).sum())

    step(model, torch.full((8, WIDTH), float(1 + smp.dp_rank())))
    return {name: p.grad for name, p in model.local_named_parameters()}


def answers_of_the_model():
    """Answers of a model of two partitions about itself, before and after its first step."""
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    before = model.partitioned
    moved = model.to("cpu") is model
    called = []
    model.register_post_partition_hook(lambda *given: called.append(("partition", len(given))))
    model.register_post_step_hook(lambda *given: called.append(("step", len(given))))
    names = [name for name, _ in model.named_parameters()]
    for _ in range(2):
        forward_step(model, torch.ones(4, WIDTH))
    return {
        "partitioned": (before, model.partitioned),
        "moved": moved,
        "called": called,
        "same_names": names == [name for name, _ in model.named_parameters()],
        "depth": model.module.module is module and model.get_module() is module,
        "parameters": [name for name, _ in model.local_named_parameters()],
        "buffers": [name for name, _ in model.local_named_buffers()],
        "modules": [name for name, _ in model.local_named_modules()],
        "counts": (len(list(model.local_parameters())), len(list(model.local_buffers()))),
        "distributed": [
            *model.distributed_modules(),
            *model.scaled_batch_reducer_named_parameters(),
            *filter(model.is_distributed_parameter, model.parameters()),
            *filter(model.is_scaled_batch_parameter, model.parameters()),
            *filter(model.is_distributed_buffer, model.local_buffers()),
            *filter(model.is_scaled_batch_buffer, model.local_buffers()),
        ],
        "reduced": [name for name, _ in model.default_reducer_named_parameters()],
        "gathered": sorted(model.state_dict(gather_to_rank0=True)),
    }
