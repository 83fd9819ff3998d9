# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_remote_effects.py: a module counts its calls."""

from __future__ import annotations

from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._pipeline import attribute_writes
from torch import nn

WIDTH = 4


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside, self.calls = inside, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inside(x)


def count(whose: str) -> list[str]:
    """Warnings of a module that counts over partitions, or in one, in two steps."""
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    smp.set_partition(second, 1)
    over_partitions = Counting(nn.Sequential(first, second))
    model = smp.DistributedModel(
        over_partitions if whose == "root" else nn.Sequential(Counting(first), second)
    )

    @smp.step
    def step(model: nn.Module, x: torch.Tensor) -> None:
        model.backward(model(x).sum())

    said: list[str] = []
    with mock.patch.object(attribute_writes.log, "warning", said.append):
        for _ in range(2):
            step(model, torch.ones(2, WIDTH))
    return [text for text in said if "sets its attribute" in text]
