# SPDX-License-Identifier: Apache-2.0
"""Where ``smp.partition`` cuts models for other pipelines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.exceptions import SMPError
from torch import nn
from torch.distributed.pipelining import SplitPoint, pipeline
from transformers import GPT2Config, GPT2LMHeadModel

from tests.free_port import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_pipelining" / "train.py"


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, scale: float = 1.0):
        return x + scale * self.down(self.up(self.norm(x)))


class Blocks(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.blocks = nn.ModuleList(Residual(16) for _ in range(count))
        self.seen = 0

    def forward(self, x, *, twice: bool = False):
        self.seen += 1
        x = self.first(x) * (2 if twice else 1)
        for block in self.blocks:
            x = block(x)
        return x


def test_stages_begin_with_blocks():
    model = Blocks(8)
    generator = torch.get_rng_state()

    names = smp.partition(model, torch.ones(2, 4), 4)

    assert names == ["blocks.2", "blocks.4", "blocks.6"]
    assert model.seen == 0
    assert torch.equal(generator, torch.get_rng_state())
    assert smp.partition(model, (torch.ones(2, 4),), 2) == ["blocks.4"]
    assert smp.partition(model, {"x": torch.ones(2, 4), "twice": True}, 1) == []


def test_of_a_published_model():
    config = GPT2Config(n_layer=6, n_embd=32, n_head=2, vocab_size=64, n_positions=16)
    names = smp.partition(GPT2LMHeadModel(config), torch.zeros(1, 8, dtype=torch.long), 3)

    assert names == ["transformer.h.2", "transformer.h.4"]


def test_torch_cuts_there():
    torch.manual_seed(0)
    model = Blocks(4)
    example = torch.randn(2, 4)
    names = smp.partition(model, example, 4)

    cut = pipeline(model, (example,), split_spec=dict.fromkeys(names, SplitPoint.BEGINNING))

    assert cut.num_stages == 4
    torch.testing.assert_close(cut(example)[0], model(example), rtol=0, atol=0)


def test_the_example_trains_with_torchs_schedule():
    outcome = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
         f"--master-port={free_port()}", EXAMPLE],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip

    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert "stages begin with blocks.3" in lines
    losses = [float(line.split()[-1]) for line in lines if line.startswith("step")]
    assert len(losses) == 4
    assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((nn.Linear(2, 2), torch.ones(1, 2), 2), "1 modules to place cannot be cut into 2"),
        ((nn.Linear(2, 2), torch.ones(1, 2), 1.5), "1.5 for the number of stages"),
        ((nn.Linear(2, 2), torch.ones(1, 2)), "None for the number of stages"),
        ((3, torch.ones(1, 2), 2), "got int and an example"),
    ],
)
def test_bad_arguments_are_refused(arguments, said):
    with pytest.raises(SMPError, match=said):
        smp.partition(*arguments)
