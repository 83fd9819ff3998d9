# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_tensor_states.py: tensor parallelism with sharded and 16-bit state, and one process
for comparison. Data are small integers, so that every sum is exact."""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
from jobs.sharding_jobs import SignSteps
from jobs.tensor_jobs import fill_with_integers, integers, own_batch
from smdistributed.modelparallel.torch._tensor import tensor_replacement
from torch import nn

SAMPLES, SEQUENCE, WIDTH, WORDS = 8, 2, 4, 10
MICROBATCHES = 2


class RecordingSteps(SignSteps):
    """Optimizer whose state also holds the gradient, of which steps show no more than the sign."""

    def step(self, closure=None):
        super().step(closure)
        for parameter, held in self.state.items():
            held["gradient"] = parameter.grad.clone()


class Layers(nn.Module):
    """Layers that tensor ranks split, and others; those of one process if ``plain``."""

    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        embedding = nn.Embedding if plain else smp.nn.DistributedEmbedding
        linear = nn.Linear if plain else smp.nn.DistributedLinear
        self.embedding = embedding(WORDS, WIDTH)
        self.before = nn.Linear(WIDTH, WIDTH)
        self.split = linear(WIDTH, WIDTH)
        self.after = nn.Linear(WIDTH, 3)

    def forward(self, ids):
        return self.after(self.split(self.before(self.embedding(ids))))


def loss_of(output: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return (output * (ids % 3 - 1).unsqueeze(-1)).sum()


@smp.step
def layers_step(model, ids):
    loss = loss_of(model(ids), ids)
    model.backward(loss)
    return loss


def refuse_cpu():
    smp.DistributedModel(Layers()).cpu()


def batch(step: int) -> torch.Tensor:
    """Batch of all replicas."""
    return integers(SAMPLES, SEQUENCE, seed=1000 + step, least=0, most=WORDS - 1).long()


def alone(steps: int, divisor: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Parameters of a plain model after steps on all batches, and the gradients of the last, which
    are small enough for the 8 bits of bfloat16."""
    module = Layers(plain=True)
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(integers(*parameter.shape, seed=number))
    optimizer = SignSteps(module.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(module(batch(step)), batch(step)).backward()
        for parameter in module.parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() <= 256
            parameter.grad /= divisor
        optimizer.step()
    return module.state_dict(), {name: p.grad for name, p in module.named_parameters()}


def made(**arguments: Any):
    module = Layers()
    fill_with_integers(module)
    if smp.state.cfg.fp16_params:
        module.before.half(), module.after.half()
    if smp.pp_size() > 1:
        for part in (module.split, module.after):
            smp.set_partition(part, smp.pp_size() - 1)
    model = smp.DistributedModel(module)
    inner = RecordingSteps(model.parameters())
    return model, smp.DistributedOptimizer(inner, **arguments)


def train(model: Any, optimizer: Any, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        optimizer.zero_grad()
        layers_step(model, *own_batch(batch(step)))
        optimizer.step()


def copied(entries: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in entries.items()}


def results_of(model: Any, optimizer: Any) -> dict[str, Any]:
    """The whole model, the gradients that its optimizer saw last, and how many elements of state
    this rank holds of them."""
    names = optimizer.states.parameter_names()
    whole = optimizer.state_dict()["state"]
    return {
        "model": copied(model.state_dict()),
        "gradients": {names[number]: held["gradient"] for number, held in whole.items()},
        "held": sum(held["gradient"].numel() for held in optimizer.optimizer.state.values()),
        "norm": optimizer._global_grad_norm,
        "types": {str(parameter.dtype) for parameter in model.local_parameters()},
    }


def trained(steps: int, **arguments: Any) -> dict[str, Any]:
    model, optimizer = made(**arguments)
    train(model, optimizer, steps)
    return results_of(model, optimizer)


def first_masters() -> tuple[dict[str, torch.Tensor], list[str]]:
    """With values that 16 bits do not hold, and what the library warned of."""
    said: list[str] = []
    with mock.patch.object(tensor_replacement, "warning", said.append):
        model = smp.DistributedModel(Layers())
    return copied(dict(model.sharded.whole_values())), said


def scaled(steps: int, spoiled: int, spoiler: int, **arguments: Any) -> dict[str, Any]:
    """Scales and overflows by step; in one of them a rank's loss is infinite. Its gradients are so
    where the rank has any of its own."""
    model, optimizer = made(**arguments)

    @smp.step
    def step_with(ids, factor):
        loss = loss_of(model(ids), ids) * factor.sum()
        model.backward(loss)
        return loss

    scales, overflows = [], []
    for step in range(steps):
        optimizer.zero_grad()
        (ids,) = own_batch(batch(step))
        factor = torch.full((len(ids),), MICROBATCHES / len(ids))
        if step == spoiled and smp.dp_rank() == spoiler:
            factor[0] = float("inf")
        step_with(ids, factor)
        optimizer.step()
        scales.append(optimizer.loss_scale)
        overflows.append(optimizer.overflow)
    return {"scales": scales, "overflows": overflows, "model": copied(model.state_dict())}


def clipped(max_norm: float, norm_type: float = 2.0, **arguments: Any) -> dict[str, Any]:
    """The norm of the first step's gradients, and what clipping made of them."""
    model, optimizer = made(**arguments)
    layers_step(model, *own_batch(batch(0)))
    norm = model.clip_grad_norm_(max_norm, norm_type).item()  # the optimizer's, by another name
    optimizer.step()
    return {**results_of(model, optimizer), "norm": norm}


# --- Checkpoints ---


def save_after(folder: str, steps: int, partial: bool = True) -> dict[str, Any]:
    model, optimizer = made()
    train(model, optimizer, steps)
    smp.save_checkpoint(folder, "saved", partial=partial, user_content={"steps": steps})
    return results_of(model, optimizer)


def resume_after(folder: str, more: int, partial: bool = True) -> dict[str, Any]:
    model, optimizer = made()
    train(model, optimizer, 1, first=50)  # from where nothing is to stay
    content = smp.resume_from_checkpoint(folder, partial=partial, load_optimizer=partial)
    train(model, optimizer, more, first=content["steps"])
    return results_of(model, optimizer)


def state_dicts(how: str, more: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """State after training went on, and after it did from the optimizer's saved state dict."""
    model, optimizer = made()
    train(model, optimizer, 2)
    saved = copy.deepcopy(  # as PyTorch's, it is no copy
        optimizer.state_dict()
        if how == "whole"
        else optimizer.local_state_dict(gather_if_shard=how == "gathered")
    )
    kept = copied(model.state_dict())
    if how == "gathered" and "parameters" not in saved:
        same = smp.allgather(saved, smp.RDP_GROUP)
        saved = max(same, key=lambda one: len(one["state"]))
    train(model, optimizer, more, first=2)
    wanted = copy.deepcopy(results_of(model, optimizer))
    model.load_state_dict(kept)
    optimizer.load_state_dict(saved)
    train(model, optimizer, more, first=2)
    return wanted, results_of(model, optimizer)
