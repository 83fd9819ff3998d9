# SPDX-License-Identifier: Apache-2.0
"""A trace leaves nothing on modules, and shows which modules read parameters of others."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from smdistributed.modelparallel.torch._partition.parameter_readers import joined_modules
from smdistributed.modelparallel.torch._partition.tracing import trace_step
from torch import nn


class Telling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.aux, self.losses = nn.Linear(2, 2), None, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.aux = self.lin(x)
        self.losses.append(self.aux)
        self.added = {"aux": self.aux}
        self.lin.register_forward_hook(lambda _module, _args, _output: None)
        return self.aux


def test_a_trace_leaves_no_attribute_and_no_hook(smp: ModuleType) -> None:
    module = Telling()
    losses = module.losses

    trace_step(module, lambda: module(torch.ones(1, 2)))

    assert module.aux is None
    assert module.losses is losses and losses == []
    assert not hasattr(module, "added")
    assert not module.lin._forward_hooks


class Tied(nn.Module):
    """Reads its child by a name that its code does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mid, self.out = nn.Embedding(4, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tables = [self.table]
        return self.out(self.mid(self.table(x))) @ tables[0].weight.T


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(2, 2), nn.LayerNorm(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.lin(x.to(self.lin.weight.dtype)))


class ByMethod(Asking):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.requires_grad else self.fused(x)

    def fused(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.lin.weight)


def test_the_trace_shows_what_is_read() -> None:
    module = Tied()
    trace = trace_step(module, lambda: module(torch.zeros(1, dtype=torch.long)))

    assert joined_modules(module, trace.reads) == {module.table}


@pytest.mark.parametrize(("kind", "joined"), [(Asking, []), (ByMethod, ["lin"])])
def test_code_shows_what_other_branches_read(kind: type[Asking], joined: list[str]) -> None:
    module = kind()

    assert joined_modules(module, {}) == {module.get_submodule(name) for name in joined}


def test_torchs_encoder_layers_are_kept_whole() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 2)
    joined = joined_modules(encoder, {})

    for layer in encoder.layers:
        assert layer not in joined
        assert set(layer.modules()) - {layer} <= joined
