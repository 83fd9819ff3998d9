# SPDX-License-Identifier: Apache-2.0
"""Features of torch.distributed beyond its collectives, over one backend, under mpirun:

    python features.py BACKEND RESULTS.pt [FEATURE...]

Each feature gives tensors; rank 0 writes them all.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - with it mpirun's ranks are known
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

Tensors = list[torch.Tensor]
CPU = torch.device("cpu")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    )


def batch(step: int, rank: int | None = None) -> torch.Tensor:
    seed = 100 * step + (dist.get_rank() if rank is None else rank)
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> Tensors:
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def whole(model: nn.Module) -> Tensors:
    """All parameters, from their shards where they have some."""
    return [
        p.full_tensor() if isinstance(p, DTensor) else p for p in map(detach, model.parameters())
    ]


def detach(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach()


def ddp_hooks() -> Tensors:
    """But PowerSGD, over which gloo hangs: tests/mpi/test_smddp_hooks.py has it."""
    results = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook,
                 default_hooks.bf16_compress_hook):  # fmt: skip
        model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
        model.register_comm_hook(None, hook)
        results += trained(model, sgd(model))
    return results


def ddp_static_graph() -> Tensors:
    model = DistributedDataParallel(net(), static_graph=True, gradient_as_bucket_view=True)
    return trained(model, sgd(model)) + whole(model)


def ddp_compiled() -> Tensors:
    model = DistributedDataParallel(net())
    return trained(torch.compile(model, backend="aot_eager"), sgd(model)) + whole(model)


def zero_redundancy() -> Tensors:
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    return trained(model, optimizer) + whole(model)


def joined() -> Tensors:
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    with Join([model]):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            model(batch(step)).square().mean().backward()
            optimizer.step()
    return whole(model)


def fsdp1() -> Tensors:
    model = FullyShardedDataParallel(net(), use_orig_params=True, device_id=CPU)
    losses = trained(model, sgd(model))
    with FullyShardedDataParallel.summon_full_params(model):
        return losses + [p.detach().clone() for p in model.parameters()]


def fsdp2() -> Tensors:
    model = net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return trained(model, sgd(model)) + whole(model)


def hsdp() -> Tensors:
    model = net()
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "shard"))
    fully_shard(model, mesh=mesh)
    return trained(model, sgd(model)) + whole(model)


def checkpoints() -> Tensors:
    """Saved asynchronously from shards over all ranks, loaded into shards of half as many."""
    size = dist.get_world_size()
    folder: list[Any] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    trained(model, sgd(model))
    dcp.async_save(get_model_state_dict(model), checkpoint_id=folder[0]).result(60)
    torch.manual_seed(1)
    other = nn.Sequential(*(type(m)(*_sizes(m)) for m in net()))
    fully_shard(other, mesh=init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "shard")))
    state = get_model_state_dict(other)
    dcp.load(state, checkpoint_id=folder[0])
    set_model_state_dict(other, state)
    return whole(other)


def _sizes(module: nn.Module) -> tuple[int, ...]:
    return (module.in_features, module.out_features) if isinstance(module, nn.Linear) else ()


def dtensor() -> Tensors:
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2))
    values = torch.arange(48.0).reshape(8, 6)
    cut = distribute_tensor(values, mesh, [Shard(0), Shard(1)])
    turned = cut.redistribute(placements=[Shard(1), Replicate()])
    return [turned.full_tensor(), (cut.t() @ cut).full_tensor(), cut.sum(0).full_tensor()]


def tensor_parallel() -> Tensors:
    model = net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = sgd(model)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(batch(step, 0)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses + whole(model)


def pipelining() -> Tensors:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    stage_module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    stage = PipelineStage(stage_module, rank, size, CPU)
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)
    inputs, target = torch.arange(128.0).reshape(16, 8) / 64, torch.zeros(16, 8)
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(inputs)
    elif rank == size - 1:
        schedule.step(target=target, losses=losses)
    else:
        schedule.step()
    gradients = torch.cat(
        [p.grad.flatten() for p in stage_module.parameters() if p.grad is not None]
    )
    gathered = [torch.empty_like(gradients) for _ in range(size)]
    dist.all_gather(gathered, gradients)
    return gathered


def functional_collectives() -> Tensors:
    rank, size = dist.get_rank(), dist.get_world_size()
    group = list(range(size))
    own = torch.arange(4.0 * size) + rank

    def all_of_them(own: torch.Tensor) -> Tensors:
        return [
            functional.all_reduce(own, "sum", group) + 1,
            functional.all_gather_tensor(own, 0, group) + 1,
            functional.reduce_scatter_tensor(own, "sum", 0, group) + 1,
            functional.all_to_all_single(own, None, None, group) + 1,
        ]

    return all_of_them(own) + torch.compile(all_of_them, backend="aot_eager")(own)


def subgroups() -> Tensors:
    rank, size = dist.get_rank(), dist.get_world_size()
    results = []
    halves, _ = dist.new_subgroups(size // 2)
    for group in (halves, dist.new_group(list(range(size)), timeout=None)):
        values = torch.full((5,), float(rank))
        dist.all_reduce(values, group=group)
        results.append(values)
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    return [*results, torch.tensor([one["rank"] for one in gathered])]


def ring() -> Tensors:
    rank, size = dist.get_rank(), dist.get_world_size()
    own, got = torch.full((1000,), float(rank)), torch.empty(1000)
    for _ in range(size):
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, own, (rank + 1) % size),
            dist.P2POp(dist.irecv, got, (rank - 1) % size),
        ])  # fmt: skip
        for work in works:
            work.wait()
        own = got + 1
    return [own]


FEATURES: tuple[Callable[[], Tensors], ...] = (
    ddp_hooks, ddp_static_graph, ddp_compiled, zero_redundancy, joined, fsdp1, fsdp2, hsdp,
    checkpoints, dtensor, tensor_parallel, pipelining, functional_collectives, subgroups, ring,
)  # fmt: skip


def main() -> None:
    backend, results = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group(backend)
    found = {}
    for feature in FEATURES:
        if sys.argv[3:] and feature.__name__ not in sys.argv[3:]:
            continue
        try:
            found[feature.__name__] = feature()
        except Exception as error:
            raise RuntimeError(f"{feature.__name__} over {backend}") from error
        print(f"{feature.__name__} over {backend}", flush=True)
    if dist.get_rank() == 0:
        torch.save(found, results)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
