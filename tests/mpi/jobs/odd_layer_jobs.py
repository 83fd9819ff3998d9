# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_odd_layers.py."""

from __future__ import annotations

import traceback
from typing import Any

import smdistributed.modelparallel.torch as smp
from odd_layers import KINDS, STEPS, AllKinds, batch, belongs, gradients_here


@smp.step
def train_step(model, kind, x):
    loss = model(kind, x)
    model.backward(loss)
    return loss


@smp.step
def looking_step(model, kind, x):
    model.backward(model(kind, x))
    return gradients_here(model.get_module(), kind)


def distributed() -> smp.DistributedModel:
    module = AllKinds()
    for layers in module.kinds.values():
        for partition, layer in enumerate(layers):
            smp.set_partition(layer, partition)
    return smp.DistributedModel(module)


def look(kind: str) -> list[list[Any]]:
    """By microbatch: gradients of the first partition as the step sees them behind its backward."""
    seen = looking_step(distributed(), kind, batch(0))
    return [list(one) for one in zip(*(output.outputs for output in seen), strict=True)]


def train() -> dict[str, Any]:
    """By kind: for each step losses and gradients of this rank's parameters, and how often its
    layer was told of a gradient; or the error of the kind."""
    model = distributed()
    found: dict[str, Any] = {}
    for kind in KINDS:
        own = model.get_module().kinds[kind][smp.pp_rank()]
        try:
            steps = [one_step(model, kind, step) for step in range(STEPS)]
            found[kind] = steps, own.calls
        except Exception:
            found[kind] = traceback.format_exc()
    return found


def one_step(
    model: smp.DistributedModel, kind: str, step: int
) -> tuple[list[float], dict[str, Any]]:
    model.zero_grad()
    losses = [loss.item() for loss in train_step(model, kind, batch(step)).outputs]
    parameters = model.local_named_parameters()
    return losses, {name: p.grad for name, p in parameters if belongs(name, kind)}
