# SPDX-License-Identifier: Apache-2.0
"""Modules whose forward writes into their weights, where weights have masters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPUnsupportedError
from torch import nn


@smp.step
def train(model: Any, x: torch.Tensor) -> None:
    model.backward(model(x).sum())


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("max_norm", [1.0, None])
def test_an_embedding_with_max_norm_is_named(
    kind: Callable[..., nn.Module], max_norm: float | None
) -> None:
    smp.init({"microbatches": 1, "bf16": True})
    named = pytest.raises(SMPUnsupportedError, match=r"module 0 has max_norm=1\.0")
    try:
        with named if max_norm is not None else contextlib.nullcontext():
            net = nn.Sequential(kind(4, 2, max_norm=max_norm), nn.Linear(2, 1))
            model = smp.DistributedModel(net)
            smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1))
            train(model, torch.tensor([[0, 1], [2, 3]]))
    finally:
        smp.shutdown()


WRITES: dict[str, Callable[[nn.Parameter], Any]] = {
    "data": lambda p: p.data.mul_(0.5),
    "loaded data": lambda p: p.data.copy_(torch.ones(1)),
    "clamped data": lambda p: p.data.clamp_(-0.1, 0.1),
    "row of data": lambda p: p.data[0].zero_(),
    "initialized data": lambda p: nn.init.zeros_(p.data),
    "detached": lambda p: p.detach().mul_(0.5),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_write_that_the_masters_would_overwrite_is_named(how: str) -> None:
    """Reading is none."""
    smp.init({"microbatches": 1, "bf16": True})
    try:
        net = nn.Linear(2, 1)
        model = smp.DistributedModel(net)
        optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1))
        net.weight.data.norm()
        train(model, torch.ones(1, 2))
        optimizer.step()
        optimizer.zero_grad()
        WRITES[how](net.weight)
        train(model, torch.ones(1, 2))
        with pytest.raises(SMPStepError, match=r"parameter weight was changed in place outside"):
            optimizer.step()
    finally:
        smp.shutdown()
    assert "data" not in vars(nn.Parameter) and "grad" not in vars(nn.Parameter)
