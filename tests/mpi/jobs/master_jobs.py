# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_masters.py: what scripts do to masters and to parameters that have them."""

from __future__ import annotations

from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
from optimizer_jobs import Net, alone, batch, step_function, worst, wrap
from smdistributed.modelparallel.torch._ranks import log


def kept_gradients(scale, which, optimizer="SGD"):
    """Trained weights where gradients stay for further steps after an update: all of them, or those
    of the second optimizer."""
    kind = getattr(torch.optim, optimizer, None) or getattr(smp.optimizers, optimizer)
    model = smp.DistributedModel(Net())
    halves = [
        [p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False)
    ]
    first, second = (smp.DistributedOptimizer(kind(half, lr=0.02), static_loss_scale=scale)
                     for half in halves)  # fmt: skip
    for step in range(4):
        if which != "all":
            first.zero_grad()
            if step % 2 == 0:
                second.zero_grad()
        step_function(model, batch(step))
        first.step()
        if step % 2:
            second.step()
    return {name: value.float() for name, value in model.state_dict().items()}


def scale(parameters):
    for parameter in parameters:
        parameter.grad.mul_(0.5)


def replace(parameters):
    for parameter in parameters:
        parameter.grad = parameter.grad * 0.5


def drop(parameters):
    for parameter in parameters:
        parameter.grad = None


EDITS = {"scale": scale, "replace": replace, "drop": drop}


def edited(how, loss_scale=1.0):
    """The largest difference of trained weights from plain PyTorch's, where a script changes every
    other gradient before the update and clears none."""
    plain, module = Net(), Net()
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    model = smp.DistributedModel(module)
    ours = smp.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=loss_scale
    )
    for step in range(4):
        plain(batch(step).float()).double().pow(2).mean().backward()
        step_function(model, batch(step).float())
        ours.update_master_grads()
        if step % 2:
            for optimizer in (theirs, ours):
                EDITS[how]([p for group in optimizer.param_groups for p in group["params"]])
        theirs.step()
        ours.step()
    return worst(model.state_dict(), plain.state_dict())


class TwoBranches(Net):
    """Two branches, of which the second one is not always used."""

    def __init__(self):
        super().__init__()
        self.both = True

    def forward(self, x):
        return self.out(self.mid(x) if self.both else x)


def branches():
    """Warnings where a branch is left out of a step, and where it is used again."""
    module = TwoBranches()
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    said = []
    with mock.patch.object(log, "warning", said.append):
        for both in (True, False, True):
            module.both = both
            optimizer.zero_grad()
            step_function(model, batch(0).float())
            optimizer.step()
            said.append(both)
    return [text for text in said if isinstance(text, bool) or "had gradients before" in text]


def assigned():
    """The largest difference of trained weights from plain PyTorch's, where a script decays weights
    by data of what the optimizer has."""
    plain, module = Net(), Net()
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    model = smp.DistributedModel(module)
    ours = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        for optimizer in (theirs, ours):
            optimizer.zero_grad()
        plain(batch(step).float()).double().pow(2).mean().backward()
        step_function(model, batch(step).float())
        for optimizer in (theirs, ours):
            optimizer.step()
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.data = parameter.data * 0.9
                    parameter.data.mul_(0.9)
        ours.publish_masters()
    return worst(model.state_dict(), plain.state_dict())


def unpublished(where):
    """The error of weights that masters do not have any more."""
    model, (optimizer,) = wrap(Net(), alone)
    step_function(model, batch(0).float())
    optimizer.step()
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.data.mul_(0.5)
    if where == "state dict":
        model.state_dict()
    elif where == "local state dict":
        model.local_state_dict()
    else:
        with torch.no_grad():
            outputs(model, batch(0).float())


@smp.step
def outputs(model, x):
    return model(x)


def touch(how):
    """The error of a change of a model parameter's gradient, and the norm that is right."""
    module = Net()
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    touches = {
        **EDITS,
        "norm": lambda given: [p.grad.norm() for p in given if p.grad is not None],
        "zero": lambda _: module.zero_grad(),
        "whole norm": lambda given: torch.nn.utils.get_total_norm([p.grad for p in given]),
    }
    model.zero_grad()
    assert module.inp.weight.grad is None
    step_function(model, batch(0).float())
    try:
        touches[how](list(model.parameters()))
    except smp.exceptions.SMPStepError as error:
        optimizer.step()
        model.zero_grad()
        assert module.inp.weight.grad is None
        return str(error)
    return ""
