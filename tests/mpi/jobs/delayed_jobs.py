# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_delayed_parameters.py."""

from __future__ import annotations

import ctypes
from pathlib import Path

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


def sharded_state(seeds: list[int]):
    """The model's values after a step without training, each rank's construction with a seed of its
    own."""
    torch.manual_seed(seeds[smp.rank()])
    with smp.delay_param_initialization():
        module = Custom()
    model = smp.DistributedModel(module)

    @smp.step
    def forward(model, tokens):
        return model(tokens)

    forward(model, torch.arange(8).view(4, 2))
    return model.state_dict()


WIDE, LAYERS = 1024, 16


def memory_of_construction(delay: bool):
    """Bytes by which resident memory grows at most until a model has its shards, and those of its
    whole parameters."""

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

    ctypes.CDLL(None).malloc_trim(0)  # memory that earlier jobs left would hide what this one takes
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    with smp.delay_param_initialization(enabled=delay):
        module = nn.Sequential(*(nn.Linear(WIDE, WIDE, bias=False) for _ in range(LAYERS)))
    model = smp.DistributedModel(module)
    grown = []
    model.register_post_partition_hook(lambda *_: grown.append(status("VmHWM") - before))

    @smp.step
    def forward(model, x):
        return model(x)

    forward(model, torch.ones(1, WIDE))
    return grown[0], LAYERS * WIDE * WIDE * 4


def all_values(seed: int):
    torch.manual_seed(seed)
    return dict(Custom().named_parameters())
