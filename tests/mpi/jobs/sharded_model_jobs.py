# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_sharded_models.py: real models, sharded by us and by FSDP2."""

from __future__ import annotations

import re

import smdistributed.modelparallel.torch as smp
import torch
from jobs.real_models import KINDS, batches, make, optimizer_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def own_batches(kind: str, steps: int, rows: int) -> list[dict[str, torch.Tensor]]:
    """This replica's part of the batches of all."""
    first = smp.dp_rank() * rows // smp.dp_size()
    last = (smp.dp_rank() + 1) * rows // smp.dp_size()
    return [
        {key: value[first:last] for key, value in batch.items()}
        for batch in batches(kind, steps, rows)
    ]


def train(kind: str, steps: int, rows: int):
    """Losses by step and microbatch, and the trained state, as the job's settings have it."""
    cfg = smp.state.cfg
    with smp.delay_param_initialization(enabled=cfg.delayed_parameter_initialization):
        module = make(kind)
    model = smp.DistributedModel(module, trace_device="cpu").train()
    if cfg.delayed_parameter_initialization:
        # ViT draws some values itself, which then are not those of a model without delay.
        model.load_state_dict(make(kind).state_dict())
    if cfg.offload_activations:
        for name, part in model.get_module().named_modules():
            if re.fullmatch(KINDS[kind].layers, name):
                smp.set_activation_checkpointing(part)
    optimizer = smp.DistributedOptimizer(optimizer_of(model), static_loss_scale=256.0)

    @smp.step
    def step(model, batch):
        loss = KINDS[kind].loss(model, batch)
        model.backward(loss)
        return loss

    losses = []
    for batch in own_batches(kind, steps, rows):
        optimizer.zero_grad()
        losses.append([one.item() for one in step(model, batch).outputs])
        optimizer.step()
    return losses, model.state_dict()


def train_with_fsdp(kind: str, steps: int, rows: int):
    """The same with FSDP2, in the groups that the settings give to shards and to replicas."""
    degree = smp.state.cfg.sharded_data_parallel_degree
    shape = (smp.dp_size() // degree, degree)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    model = make(kind).train()
    for name, part in model.named_modules():
        if re.fullmatch(KINDS[kind].layers, name):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = optimizer_of(model)
    losses = []
    for batch in own_batches(kind, steps, rows):
        optimizer.zero_grad()
        loss = KINDS[kind].loss(model, batch)
        loss.backward()
        losses.append([loss.item()])
        optimizer.step()
    return losses


def beside_fsdp(kind: str, steps: int, rows: int):
    ours, _ = train(kind, steps, rows)
    return ours, train_with_fsdp(kind, steps, rows)


def resident_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def watch_memory(kind: str, steps: int, every: int):
    """Resident memory after each `every` steps, and what of the store is in use."""
    model = smp.DistributedModel(make(kind), trace_device="cpu").train()
    optimizer = smp.DistributedOptimizer(optimizer_of(model))

    @smp.step
    def step(model, batch):
        loss = KINDS[kind].loss(model, batch)
        model.backward(loss)
        return loss

    found = []
    held = own_batches(kind, 1, 8)[0]
    for number in range(1, steps + 1):
        optimizer.zero_grad()
        step(model, held)
        optimizer.step()
        if number % every == 0:
            found.append((resident_bytes(), smp.memory_summary()))
    return found
