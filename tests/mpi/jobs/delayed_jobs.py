# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_delayed_parameters.py."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

WIDTH = 6


class Custom(nn.Module):
    """Initialised as published models are: from the root, in ways of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH, padding_idx=3)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 16, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                module.bias.data.uniform_(-0.1, 0.1)
        if isinstance(module, nn.Embedding):
            module.weight.data.normal_(0, 0.02)
            module.weight.data[module.padding_idx].zero_()

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x.mean(1)) * self.scale)


def delayed_state(delay: bool, load: bool = False):
    """The model's values after the first step, without training; and what was local."""
    torch.manual_seed(9)
    with smp.delay_param_initialization(enabled=delay):
        module = Custom()
    was_delayed = all(p.is_meta for n, p in module.named_parameters() if n != "scale")
    expected = [id(p) for p in module.parameters()]
    model = smp.DistributedModel(module)
    if load:
        torch.manual_seed(77)
        other = Custom()
        model.load_state_dict(other.state_dict())

    @smp.step
    def forward(model, tokens):
        return model(tokens)

    forward(model, torch.arange(8).view(4, 2))
    assert [id(p) for p in module.parameters()] == expected
    assert not any(p.is_meta for p in model.local_parameters())
    parameters = {n: p.detach().clone() for n, p in model.local_named_parameters()}
    return was_delayed, parameters


def all_values(seed: int):
    torch.manual_seed(seed)
    return dict(Custom().named_parameters())
