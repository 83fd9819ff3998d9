# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_determinism.py."""

from __future__ import annotations

import random
import time

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from models import Block, make_batches, make_model, make_optimizer
from pipeline_jobs import train_step

PINS = {"blocks.1": 1, "blocks.2": 1, "head": 1}


def train_late(steps: int, rows: int, seed: int):
    """The trained model and where this rank stands in its pipeline; each rank is slow at moments
    of its own. What is dropped depends on the order in which a rank draws."""
    torch.manual_seed(3)
    module = make_model()
    for name, partition in PINS.items():
        smp.set_partition(module.get_submodule(name), partition)
    generator = random.Random(100 * seed + smp.rank())
    for part in module.modules():
        if isinstance(part, Block):
            part.register_forward_pre_hook(lambda *_: time.sleep(generator.uniform(0, 0.006)))
            part.register_forward_hook(lambda _, __, output: F.dropout(output, 0.25))
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer(model))
    for batch in make_batches(steps, rows):
        optimizer.zero_grad()
        train_step(model, *(part.chunk(smp.dp_size())[smp.dp_rank()] for part in batch))
        optimizer.step()
    return model.state_dict(), smp.pp_rank()
