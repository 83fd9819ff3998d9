# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_reducer.py. Data are small integers, so that every sum is exact."""

from __future__ import annotations

from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._replicas import replicas
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

WIDTH = 6


class Product(nn.Module):
    """A layer whose weights, inputs and gradients are integers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(
            torch.randint(-2, 3, (WIDTH, WIDTH), generator=generator).float()
        )

    def forward(self, x):
        return x @ self.weight


class Chain(nn.Module):
    """`often` runs as often as it is told; `rare` is used by some inputs only."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Product(1)
        self.often = Product(2)
        self.rare = Product(3)
        self.never = Product(4)
        self.frozen = Product(5)
        self.frozen.weight.requires_grad_(False)
        self.last = Product(6)
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x, times: int, use_rare: bool):
        self.total += x.sum().detach()
        x = self.frozen(self.first(x))
        if use_rare:
            x = x + self.rare(x)
        for _ in range(times):
            x = self.often(x)
        return self.last(x)


@smp.step
def train_step(model, x, times, use_rare):
    loss = model(x, times, use_rare).sum()
    model.backward(loss)
    return loss


#: Number of runs of `often` and the replicas that use `rare`, step by step: what one step teaches
#: is wrong in the next.
PLAN = [(1, (0,)), (1, (0,)), (1, ()), (2, (1,)), (2, (0, 1)), (0, (0,)), (1, (0, 1)), (1, (0, 1))]


def batch(step: int, replica: int, microbatches: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + replica)
    return torch.randint(-1, 2, (2 * microbatches, WIDTH), generator=generator).float()


def gradients_by_a_group_for_flags(bucket_cap_mb: float):
    """As on GPUs, where ranks agree over a group for the CPU."""
    plain = replicas._flags_group_name
    group = smp.state.require_initialized("a test").groups.cpu_group
    replicas._flags_group_name = lambda kind, _: str(group(kind).group_name)
    try:
        return gradients(bucket_cap_mb)
    finally:
        replicas._flags_group_name = plain


def gradients(bucket_cap_mb: float, passes: int = 1, zero: bool = True, **options):
    """Per step the gradients of this rank's parameters, and how many buckets went early."""
    module = Chain()
    if smp.pp_size() > 1:
        smp.set_partition(module.often, 1)
        smp.set_partition(module.last, 1)
    model = smp.DistributedModel(
        module, bucket_cap_mb=bucket_cap_mb, backward_passes_per_step=passes, **options
    )
    seen, early = [], []
    for step, (times, users) in enumerate(PLAN):
        if zero:
            for parameter in model.parameters():
                parameter.grad = None
        train_step(
            model, batch(step, smp.dp_rank(), smp.state.cfg.microbatches), times,
            smp.dp_rank() in users,
        )  # fmt: skip
        seen.append(
            {
                name: None if parameter.grad is None else parameter.grad.clone()
                for name, parameter in model.local_named_parameters()
            }
        )
        for parameter in model.local_parameters():
            if parameter.grad is not None:
                parameter.grad.detach_()  # as torch::optim clears them; views refuse it
        early.append(model.replicas.reducers[0].progress)
    return seen, early


def alone(replicas: int, microbatches: int, zero: bool = True):
    """The same from one process, per step."""
    modules = [Chain() for _ in range(replicas)]
    seen = []
    sums = {}
    for step, (times, users) in enumerate(PLAN):
        if zero:
            sums = {}
        for replica, module in enumerate(modules):
            module.zero_grad()
            out = module(batch(step, replica, microbatches), times, replica in users)
            (out.sum() / microbatches).backward()
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    sums[name] = sums.get(name, 0) + parameter.grad / replicas
        seen.append({name: sums.get(name) for name, _ in modules[0].named_parameters()})
    return seen


def hooked(kind: str):
    """Gradients reduced by a hook of the script, of DDP's, or by none."""
    model = smp.DistributedModel(Chain(), bucket_cap_mb=0.0001)
    calls = []

    def mean(state, bucket):
        calls.append((state, bucket.index(), bucket.is_last(), len(bucket.gradients())))
        work = torch.distributed.all_reduce(
            bucket.buffer(), group=smp.get_dp_process_group(), async_op=True
        )
        return work.get_future().then(
            lambda future: future.value()[0] / (smp.dp_size() * smp.state.cfg.microbatches)
        )

    if kind == "own":
        model.register_comm_hook("mine", mean)
    elif kind == "ddp":
        model.register_comm_hook(smp.get_dp_process_group(), default_hooks.allreduce_hook)
    for step in range(3):
        model.zero_grad()
        train_step(model, batch(step, smp.dp_rank(), smp.state.cfg.microbatches), 1, True)
    grads = {n: p.grad for n, p in model.local_named_parameters() if p.grad is not None}
    return grads, calls


def threads_of_a_kept_model() -> tuple[int, int]:
    """The number of gloo's threads in the session and after it, with the model kept."""
    model = smp.DistributedModel(Chain())
    train_step(model, batch(0, 0, smp.state.cfg.microbatches), 1, True)
    before = gloo_threads()
    smp.shutdown()
    return before, gloo_threads()


def gloo_threads() -> int:
    return sum("gloo" in name.read_text() for name in Path("/proc/self/task").glob("*/comm"))


def broken_hook():
    model = smp.DistributedModel(Chain())

    def short(_state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer()[:-1])
        return future

    model.register_comm_hook(None, short)
    train_step(model, batch(0, 0, smp.state.cfg.microbatches), 1, True)


def endless_hook():
    model = smp.DistributedModel(Chain())

    model.register_comm_hook(None, lambda _state, _bucket: torch.futures.Future())
    train_step(model, batch(0, 0, smp.state.cfg.microbatches), 1, True)


def uneven(batches: list[int], **options):
    """Replica r trains on `batches[r]` batches; parameters, buffer and steps at the end."""
    model = smp.DistributedModel(Chain())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=2.0**-10))
    steps = 0
    with model.join(**options):
        for step in range(batches[smp.dp_rank()]):
            optimizer.zero_grad()
            train_step(model, batch(step, smp.dp_rank(), smp.state.cfg.microbatches), 1, True)
            optimizer.step()
            steps += 1
    return model.get_module().state_dict(), steps


def uneven_alone(batches: list[int], microbatches: int, by_all: bool):
    module = Chain()
    optimizer = torch.optim.SGD(module.parameters(), lr=2.0**-10)
    for step in range(max(batches)):
        sums = {}
        active = [replica for replica, count in enumerate(batches) if step < count]
        for replica in active:
            module.zero_grad()
            out = module(batch(step, replica, microbatches), 1, True)
            (out.sum() / microbatches).backward()
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    sums[name] = sums.get(name, 0) + parameter.grad
        for name, parameter in module.named_parameters():
            if name in sums:
                parameter.grad = sums[name] / (len(batches) if by_all else len(active))
        optimizer.step()
    return module.state_dict()


def buffers_of_replicas(broadcast: bool):
    """The buffer of this replica after two steps on data of its own."""
    model = smp.DistributedModel(Chain(), broadcast_buffers=broadcast)
    for step in range(2):
        train_step(model, batch(step, smp.dp_rank(), 1), 1, True)
    return model.get_module().total.item()
