# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_precision.py: 16-bit training, and optimizer state that is sharded."""

from __future__ import annotations

import math

import smdistributed.modelparallel.torch as smp
import torch
from jobs.sharding_jobs import (
    KINDS,
    Chain,
    Short,
    batch,
    float_step,
    make_optimizer,
    split_over_partitions,
    train_step,
)


def train_in(kind: str, optimizer: str, steps: int, passes: int = 1, before: bool = False):
    """With flat state; `before`: the optimizer is made before the model is wrapped."""
    module = KINDS[kind]()
    if smp.pp_size() > 1:
        split_over_partitions(module)
    made = make_optimizer(optimizer, module.parameters()) if before else None
    model = smp.DistributedModel(module, backward_passes_per_step=passes)
    made = made or make_optimizer(optimizer, model.parameters())
    wrapped_optimizer = smp.DistributedOptimizer(made)
    step_function = train_step if kind == "strange" else float_step
    losses = []
    for step in range(steps):
        if step % passes == 0:
            wrapped_optimizer.zero_grad()
        loss = step_function(model, batch(step, smp.dp_rank()))
        losses.append([one.item() for one in loss.outputs])
        if (step + 1) % passes == 0:
            wrapped_optimizer.step()
    types = sorted({str(p.dtype) for p in model.local_parameters()})
    held = sum(t.numel() for p in made.state.values() for t in p.values()
               if torch.is_tensor(t) and t.dim() > 0)  # fmt: skip
    return model.state_dict(), losses, types, held


def write_parameters():
    """Masters after a script wrote one parameter, and the values that the model had."""
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer("sgd", model.parameters()))
    with torch.no_grad():
        module[0].weight.fill_(0.1)
    optimizer.init_master_params()
    optimizer.reload_model_params()
    masters = optimizer.state_dict()["_smp_masters"]
    names = smp.state.param_index_to_name_tp_group[smp.tp_rank()]
    return {names[number]: master for number, master in masters.items()}, before


def scale_losses(steps: int, spoiled: list[int], spoiler: int, clip: float = 0, **arguments):
    """Scales, overflows and norms by step; every step gets the same batch."""
    module = Short()
    if smp.pp_size() > 1:
        split_over_partitions(module)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer("sign", model.parameters()), **arguments)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, step_size=1000)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        x = batch(0, smp.dp_rank())
        if step in spoiled and smp.rank() == spoiler:
            x[0, 0] = float("inf")
        float_step(model, x)
        norm = optimizer.clip_master_grads(clip) if clip else None
        optimizer.step()
        if not optimizer.overflow:
            schedule.step()
        seen.append((optimizer.loss_scale, optimizer.overflow, norm))
    return seen, model.state_dict()


def without_zeros():
    module = Short()
    for parameter in module.parameters():
        parameter.data[parameter == 0] = 1  # next to which small numbers vanish
    return module


def tiny_updates(steps: int, rate: float):
    """Masters after updates that their 16-bit copies cannot show, and those copies."""
    model = smp.DistributedModel(without_zeros())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=rate))
    for _ in range(steps):
        optimizer.zero_grad()
        float_step(model, batch(0, smp.dp_rank()))
        optimizer.step()
    return dict(model.sharded.whole_values()), model.state_dict()


def refuse_per_tensor(kind: str):
    make = {
        "adafactor": torch.optim.Adafactor,
        "lamb": smp.optimizers.FusedLAMB,
        "lbfgs": torch.optim.LBFGS,
    }[kind]
    model = smp.DistributedModel(Chain())
    smp.DistributedOptimizer(make(model.parameters(), lr=0.1))


#: By norms of whole parameters, in groups of different settings; the last group is of one bias.
BY_NORMS = {
    "lamb": lambda groups: smp.optimizers.FusedLAMB(groups, lr=0.1, weight_decay=0.1),
    "nvlamb": lambda groups: smp.optimizers.FusedLAMB(groups, lr=0.1, use_nvlamb=True,
                                                      max_grad_norm=0.5),
    "novograd": lambda groups: smp.optimizers.FusedNovoGrad(groups, lr=0.1, weight_decay=0.1),
    "largest": lambda groups: smp.optimizers.FusedNovoGrad(groups, lr=0.1, norm_type=0),
}  # fmt: skip


#: By whole parameters; the second one of matrices only.
BY_WHOLES = {
    "adafactor": lambda groups: torch.optim.Adafactor(groups, lr=0.1),
    "muon": lambda groups: torch.optim.Muon([p for g in groups for p in g["params"] if p.ndim == 2],
                                            lr=0.1),
}  # fmt: skip
NOT_BY_ELEMENT = BY_NORMS | BY_WHOLES


def groups_of(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [{"params": parameters[:2]}, {"params": parameters[2:-1], "weight_decay": 0.0},
            {"params": parameters[-1:]}]  # fmt: skip


@smp.step
def double_step(model, x):
    model.backward(model(x)["out"][0].double().sum())


def not_by_element(kind: str, steps: int):
    """The trained model; the state of its optimizer is saved and taken again on the way. Doubles:
    these optimizers make a difference of a gradient's last bit large."""
    module = Short().double()
    if smp.pp_size() > 1:
        split_over_partitions(module)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(NOT_BY_ELEMENT[kind](groups_of(model)))
    for step in range(steps):
        if step == 2:
            saved = optimizer.state_dict()
            for held in optimizer.optimizer.state.values():
                held.clear()
            optimizer.load_state_dict(saved)
        optimizer.zero_grad()
        double_step(model, batch(step, smp.dp_rank()).double())
        optimizer.step()
    return model.state_dict()


def owned_parameters(kind: str):
    """Elements of each parameter that this rank steps, and the size of each."""
    model = smp.DistributedModel(Short())
    smp.DistributedOptimizer(NOT_BY_ELEMENT[kind](groups_of(model)))
    owned = {model.sharded.names[p.parameter]: p.elements for p in model.sharded.store.pieces()}
    return owned, {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}


def not_by_element_alone(kind: str, steps: int, replicas: int):
    module = Short().double()
    optimizer = NOT_BY_ELEMENT[kind](groups_of(module))
    for step in range(steps):
        optimizer.zero_grad()
        for replica in range(replicas):
            (module(batch(step, replica).double())["out"][0].sum() / replicas).backward()
        optimizer.step()
    return module.state_dict()


def step_too_early():
    model = smp.DistributedModel(Short(), backward_passes_per_step=2)
    optimizer = smp.DistributedOptimizer(make_optimizer("sgd", model.parameters()))
    float_step(model, batch(0, 0))
    optimizer.step()


def accumulate_on():
    """Gradients that were averaged and not zeroed count once more."""
    model = smp.DistributedModel(KINDS["chain"]())
    optimizer = smp.DistributedOptimizer(make_optimizer("sgd", model.parameters()))
    for step in range(2):
        train_step(model, batch(step, smp.dp_rank()))
    grads = {}
    for run in optimizer._masters.runs:
        for piece in run.pieces:
            name = model.sharded.names[piece.parameter]
            grads[name] = (piece.start, run.slice_of(piece, run.parameter.grad).clone())
    return grads


def accumulate_on_alone(replicas: int):
    module = Chain()
    for step in range(2):
        for replica in range(replicas):
            (module(batch(step, replica))["out"][0].sum() / replicas).backward()
    return {name: parameter.grad.reshape(-1) for name, parameter in module.named_parameters()}


def norm_where_one_gradient_is_lost(rank: int, norm_type: float) -> float:
    """``rank`` has a gradient that is no number."""
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([1.0, math.nan if smp.rank() == rank else 2.0])
    return smp.clip_grad_norm_([parameter], 1.0, norm_type).item()
