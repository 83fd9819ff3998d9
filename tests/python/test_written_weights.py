# SPDX-License-Identifier: Apache-2.0
"""Modules whose forward writes into their weights, where weights have masters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
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
