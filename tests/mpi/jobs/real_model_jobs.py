# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_real_models.py."""

from __future__ import annotations

import re

import smdistributed.modelparallel.torch as smp
from real_models import KINDS, batches, make, optimizer_of


def train(kind: str, steps: int, size: int, checkpointed: bool):
    """Losses, the whole trained state, and the names of the parameters that are here."""
    model = smp.DistributedModel(make(kind), trace_device="cpu").train()
    optimizer = smp.DistributedOptimizer(optimizer_of(model))
    if checkpointed:
        for name, module in model.get_module().named_modules():
            if re.fullmatch(KINDS[kind].layers, name):
                smp.set_activation_checkpointing(module)

    @smp.step
    def step(model, batch):
        loss = KINDS[kind].loss(model, batch)
        model.backward(loss)
        return loss

    losses = []
    for batch in batches(kind, steps, size):
        optimizer.zero_grad()
        loss = step(model, batch)
        optimizer.step()
        losses.append([one.item() for one in loss.outputs])
    return losses, model.state_dict(), [name for name, _ in model.local_named_parameters()]
