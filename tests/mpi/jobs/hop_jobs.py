# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_hops.py: the two hops of gradients, in order and out of it."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
from jobs.sharding_jobs import Chain, alone, batch, make_optimizer, wrapped

SMALL_BUCKETS = {"sdp_reduce_bucket_size": 1}  # each unit on its own


def watch_second_hop(steps: int, passes: int):
    """Bytes for replicas that were under way when the first layer got its gradient, and all, by
    backward."""
    model, optimizer = wrapped("chain", "sgd", passes)
    store = model.sharded.store
    seen = []

    @smp.step
    def step(model, x):
        out = model(x)["out"][0]
        weight = model.get_module().first.weight
        before = store.traffic()["replicas"]
        handle = weight.register_hook(
            lambda grad: seen.append(store.traffic()["replicas"] - before)
        )
        model.backward(out.sum())
        handle.remove()

    whole = []
    for number in range(steps):
        before = store.traffic()["replicas"]
        step(model, batch(number, smp.dp_rank()))
        whole.append(store.traffic()["replicas"] - before)
        if (number + 1) % passes == 0:
            optimizer.step()
            optimizer.zero_grad()
    return seen, whole


@smp.step
def parts_step(model, x, parts):
    """`parts` backwards a microbatch, where one is expected."""
    for part in x.chunk(parts):
        model.backward(model(part)["out"][0].sum())


def several_backwards(steps: int, parts: int):
    model, optimizer = wrapped("chain", "sign")
    for step in range(steps):
        optimizer.zero_grad()
        parts_step(model, batch(step, smp.dp_rank()), parts)
        optimizer.step()
    return model.state_dict()


def several_backwards_alone(steps: int, replicas: int, microbatches: int):
    return alone("chain", "sign", steps, replicas, microbatches)[0]


class Choosing(torch.nn.Module):
    """Runs its blocks from the number that it is given on."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = Chain()

    def forward(self, x, begin: int):
        x = self.whole.first(x)
        for block in self.whole.blocks[begin:]:
            x = block(x)
        return self.whole.last(x)


@smp.step
def choosing_step(model, x, begin):
    model.backward(model(x, begin).sum())


def replicas_that_choose(begins: list[int]):
    """Each shard group runs other blocks than its replicas do."""
    model = smp.DistributedModel(Choosing())
    optimizer = smp.DistributedOptimizer(make_optimizer("sign", model.parameters()))
    group = smp.dp_rank() // smp.state.cfg.sharded_data_parallel_degree
    for step, offset in enumerate(begins):
        optimizer.zero_grad()
        choosing_step(model, batch(step, smp.dp_rank()), (group + offset) % 3)
        optimizer.step()
    return model.state_dict()


def replicas_that_choose_alone(begins: list[int], replicas: int, degree: int, microbatches: int):
    module = Choosing()
    optimizer = make_optimizer("sign", module.parameters())
    for step, offset in enumerate(begins):
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for replica in range(replicas):
            begin = (replica // degree + offset) % 3
            for part in batch(step, replica).chunk(microbatches):
                loss = module(part, begin).sum()
                loss.backward(torch.tensor(1 / microbatches / replicas))
        optimizer.step()
    return module.state_dict()
