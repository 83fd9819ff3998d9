# SPDX-License-Identifier: Apache-2.0
"""Gradients of 16-bit parameters that come in some steps only."""

from __future__ import annotations

from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.always, self.later = (nn.Linear(2, 1, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        y = self.always(x)
        return (y + self.later(x) if both else y).sum()


@smp.step
def train(model: Any, x: torch.Tensor, both: bool) -> None:
    model.backward(model(x, both))


def test_a_branch_of_a_later_step_learns_what_pytorch_learns() -> None:
    """Nobody zeroes the gradients in between. All numbers are whole, and exact in 16 bits."""
    plain = Branches()
    for parameter in plain.parameters():
        nn.init.constant_(parameter, 1)
    steps = [(1.0, False), (2.0, True), (1.0, False), (3.0, True)]
    smp.init({"microbatches": 1, "bf16": True})
    try:
        module = Branches()
        module.load_state_dict(plain.state_dict())
        model = smp.DistributedModel(module)
        optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1))
        for value, both in steps:
            train(model, torch.full((1, 2), value), both)
            optimizer.step()
        learned = {name: value.float() for name, value in model.state_dict().items()}
    finally:
        smp.shutdown()

    theirs = torch.optim.SGD(plain.parameters(), lr=1)
    for value, both in steps:
        plain(torch.full((1, 2), value), both).backward()
        theirs.step()
    for name, value in plain.state_dict().items():
        assert torch.equal(learned[name], value), name
