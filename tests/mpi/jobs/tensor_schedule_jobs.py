# SPDX-License-Identifier: Apache-2.0
"""Random models of nested modules, plain and distributed, with random delays: what ranks do in
test_tensor_schedules.py, and one process for comparison. All numbers are integers."""

from __future__ import annotations

import random
import time
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from jobs.tensor_jobs import fill_with_integers, integers, own_batch, own_share, whole_gradients
from torch import nn

SAMPLES, WIDTH = 16, 4
LONGEST_DELAY = 0.002


class Late(torch.autograd.Function):
    """The identity, some milliseconds later, forward and backward: ranks get out of step."""

    @staticmethod
    def forward(ctx, tensor, delays):
        ctx.delays = delays
        _wait(delays)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        _wait(ctx.delays)
        return gradient, None


def _wait(delays: random.Random | None) -> None:
    if delays is not None and delays.random() < 0.25:
        time.sleep(delays.uniform(0, LONGEST_DELAY))


class Node(nn.Module):
    """A layer, then the children in order, on top of the input."""

    def __init__(self, layer: nn.Module, children: list[nn.Module]) -> None:
        super().__init__()
        self.layer = layer
        self.inner = nn.ModuleList(children)
        self.delays: random.Random | None = None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        result = torch.relu(self.layer(Late.apply(states, self.delays)))
        for child in self.inner:
            result = child(result)
        return result + states


def random_model(dice: random.Random, depth: int = 0) -> Node:
    """The same for the same dice on any number of ranks."""
    kind = dice.choice([nn.Linear, smp.nn.DistributedLinear, smp.nn.DistributedLinear])
    children = dice.randint(2, 3) if depth == 0 else dice.choice([0, 0, 1, 2])
    return Node(
        kind(WIDTH, WIDTH),
        [random_model(dice, depth + 1) for _ in range(children if depth < 3 else 0)],
    )


@smp.step
def step(model, states):
    result = model(states)
    model.backward(result.sum())
    return result


def train(seed: int, steps: int) -> list[dict[str, Any]]:
    """Outputs and gradients of steps on one batch; gradients are sums over microbatches."""
    dice = random.Random(seed)
    module = random_model(dice).double()
    fill_with_integers(module)
    nodes = [node for node in module.modules() if isinstance(node, Node)]
    for number, node in enumerate(nodes):
        smp.set_partition(node, dice.randrange(2) % smp.pp_size() if number else 0)
        if smp.size() > 1:
            node.delays = random.Random(1000 * seed + 10 * number + smp.rank())
    model = smp.DistributedModel(module, average_grads_across_microbatches=False)
    states = integers(SAMPLES, WIDTH, seed=seed).double()
    found = []
    for _ in range(steps):
        model.zero_grad()
        output = step(model, *own_batch(states))
        found.append(
            {
                "share": own_share(),
                "output": output.concat(),
                "gradients": whole_gradients(model),
            }
        )
    return found
