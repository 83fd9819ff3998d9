# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_smddp.py: `smddp_jobs.py NAME`. Prints one line a check."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial, reduce

import pytest
import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ReduceOp
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
BITS = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
#: Up to here all data goes with the notes, and sums are in the order of ranks.
SMALL_BYTES = 32 * 1024
#: 0-dim, empty, one, a few, what is not small any more (32 KiB), and many chunks of half a MiB.
SHAPES = [(), (0,), (1,), (3, 5), (2, 0, 3), (127,), (9001,), (257, 1031)]
#: Chunks are the same for all types and operations: a few of these at this length.
LONG_SHAPE = (1_500_007,)
LONG_KINDS = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)


def values(shape: tuple[int, ...], kind: torch.dtype, rank: int) -> torch.Tensor:
    """Small integers: their sums are exact in every type and order."""
    generator = torch.Generator().manual_seed(rank)
    whole = torch.randint(0, 2 if kind == torch.bool else 4, shape, generator=generator)
    return whole.to(kind)


def same(ours: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    if not torch.equal(ours, expected):
        raise AssertionError(f"{what}: {ours} is not {expected}")


def everybody(make: Callable[[int], torch.Tensor]) -> list[torch.Tensor]:
    return [make(rank) for rank in range(dist.get_world_size())]


def reductions() -> None:
    """All types and operations against the sum that this rank makes by itself."""
    rank, size = dist.get_rank(), dist.get_world_size()
    plain = {
        ReduceOp.SUM: partial(reduce, torch.add),
        ReduceOp.MIN: partial(reduce, torch.minimum),
        ReduceOp.MAX: partial(reduce, torch.maximum),
        ReduceOp.PRODUCT: partial(reduce, torch.mul),
        ReduceOp.BAND: partial(reduce, torch.bitwise_and),
        ReduceOp.BOR: partial(reduce, torch.bitwise_or),
        ReduceOp.BXOR: partial(reduce, torch.bitwise_xor),
    }
    few = (ReduceOp.SUM, ReduceOp.MAX)
    for shape in (*SHAPES, LONG_SHAPE):
        for kind in LONG_KINDS if shape == LONG_SHAPE else (*FLOATS, *INTEGERS):
            inputs = everybody(lambda r: values(shape, kind, r))  # noqa: B023
            for operation, expected in plain.items():
                if kind in FLOATS and operation in BITS:
                    continue
                if shape == LONG_SHAPE and operation not in few:
                    continue
                data = inputs[rank].clone()
                dist.all_reduce(data, operation)
                same(data, expected(inputs), (shape, kind, operation))
            data = inputs[rank].clone()
            dist.reduce(data, size - 1)
            same(data, plain[ReduceOp.SUM](inputs) if rank == size - 1 else inputs[rank], "reduce")
            whole = torch.cat([inputs[rank].reshape(-1)] * size)
            part = torch.empty_like(inputs[rank].reshape(-1))
            dist.reduce_scatter_tensor(part, whole)
            same(part, plain[ReduceOp.SUM](inputs).reshape(-1), ("reduce_scatter", shape, kind))
            scattered = torch.empty_like(inputs[rank])
            dist.reduce_scatter(scattered, [inputs[rank]] * size)
            same(scattered, plain[ReduceOp.SUM](inputs), ("reduce_scatter list", shape, kind))
    truths = everybody(lambda r: values((1000,), torch.bool, r))
    data = truths[rank].clone()
    dist.all_reduce(data)
    same(data, torch.stack(truths).any(0), "bool")
    data = torch.full((5,), complex(rank, 1))
    dist.all_reduce(data)
    same(data, torch.full((5,), complex(sum(range(size)), size)), "complex")
    data = torch.full((50_000,), float(rank))
    dist.all_reduce(data, ReduceOp.AVG)
    same(data, torch.full((50_000,), (size - 1) / 2), "average")
    data = torch.ones(7)
    dist.all_reduce(data, dist._make_nccl_premul_sum(0.5))  # type: ignore[attr-defined]
    same(data, torch.full((7,), size / 2), "premultiplied sum")


def movements() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for shape in (*SHAPES, LONG_SHAPE):
        for kind in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
            inputs = everybody(lambda r: values(shape, kind, r))  # noqa: B023
            outputs = [torch.empty_like(inputs[0]) for _ in range(size)]
            dist.all_gather(outputs, inputs[rank])
            for ours, expected in zip(outputs, inputs, strict=True):
                same(ours, expected, ("all_gather", shape))
            whole = torch.empty(size, inputs[0].numel(), dtype=kind)
            dist.all_gather_into_tensor(whole, inputs[rank].reshape(1, -1))
            same(whole, torch.stack([one.reshape(-1) for one in inputs]), "all_gather_into_tensor")
            for root in range(size):
                data = inputs[rank].clone()
                dist.broadcast(data, root)
                same(data, inputs[root], ("broadcast", shape))
            here = rank == size - 1
            dist.gather(inputs[rank], outputs if here else None, size - 1)
            if here:
                for ours, expected in zip(outputs, inputs, strict=True):
                    same(ours, expected, ("gather", shape))
            part = torch.empty_like(inputs[0])
            dist.scatter(part, inputs if here else None, size - 1)
            same(part, inputs[rank], ("scatter", shape))
            dist.all_to_all(outputs, [inputs[rank] for _ in range(size)])
            for ours, expected in zip(outputs, inputs, strict=True):
                same(ours, expected, ("all_to_all", shape))
    # Rank a sends a + 2 b rows to rank b.
    sent = [rank + 2 * peer for peer in range(size)]
    received = [peer + 2 * rank for peer in range(size)]
    source = torch.cat(
        [torch.full((rows, 3), 10.0 * rank + peer) for peer, rows in enumerate(sent)]
    )
    target = torch.empty(sum(received), 3)
    dist.all_to_all_single(target, source, received, sent)
    rows = [torch.full((n, 3), 10.0 * peer + rank) for peer, n in enumerate(received)]
    same(target, torch.cat(rows), "all_to_all_single")
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(size)], objects
    dist.barrier()


def layouts() -> None:
    """Tensors with holes and in other orders."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = torch.arange(60.0).reshape(6, 10)[:, ::2].t() + rank
    base = data.clone()
    view = torch.zeros(5, 12)[:, ::2]
    view.copy_(base)
    dist.all_reduce(view)
    expected = sum(torch.arange(60.0).reshape(6, 10)[:, ::2].t() + r for r in range(size))
    same(view, expected, "a view with holes")
    outputs = [torch.zeros(10, 6).t() for _ in range(size)]
    dist.all_gather(outputs, torch.full((6, 10), float(rank)).t().contiguous().t())
    for peer, output in enumerate(outputs):
        same(output, torch.full((6, 10), float(peer)), "transposed outputs")


def ordered_sum(inputs: list[torch.Tensor], hosts: bool) -> torch.Tensor:
    """In the order of ranks; with `hosts` those of each host first, rounded, then the hosts."""
    kind = inputs[0].dtype
    wide = torch.float64 if kind == torch.float64 else torch.float32
    each = int(os.environ["LOCAL_WORLD_SIZE"]) if hosts else len(inputs)
    sums = []
    for start in range(0, len(inputs), each):
        sums.append(reduce(torch.add, [one.to(wide) for one in inputs[start : start + each]]))
    return reduce(torch.add, [one.to(kind).to(wide) for one in sums]).to(kind)


def same_bits() -> None:
    """Sums that depend on their order: one result for all ranks, runs and ways to ask."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for kind in FLOATS:
        for count in (5, 4099, 700_001):
            inputs = [
                torch.randn(count, generator=torch.Generator().manual_seed(r)).to(kind) * 10**r
                for r in range(size)
            ]
            results = []
            for _ in range(3):
                data = inputs[rank].clone()
                dist.all_reduce(data)
                results.append(data)
            small = count * inputs[0].element_size() <= SMALL_BYTES
            for result in results:
                same(result, ordered_sum(inputs, hosts=not small), ("order", kind, count))


def asynchronous() -> None:
    """Many at once, in four groups and the world; futures; coalesced calls."""
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(backend="smddp") for _ in range(4)]
    order = list(range(40))
    works = []
    for turn in order:
        data = torch.full((1 + 997 * turn,), float(rank + turn))
        works.append((data, dist.all_reduce(data, group=groups[turn % 4], async_op=True), turn))
    random.Random(rank).shuffle(works)  # ranks wait in different orders
    for data, work, turn in works:
        work.wait()
        same(data, torch.full_like(data, sum(r + turn for r in range(size))), turn)
        assert work.is_completed()
    data = torch.ones(3)
    doubled = dist.all_reduce(data, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same(doubled.wait(), torch.full((3,), 2.0 * size), "future")
    evens = dist.new_group(list(range(0, size, 2)), backend="smddp")
    if rank % 2 == 0:
        data = torch.ones(100_000)
        dist.all_reduce(data, group=evens)
        same(data, torch.full_like(data, float((size + 1) // 2)), "subgroup")
    with dist._coalescing_manager():  # type: ignore[attr-defined]
        parts = [torch.full((n,), float(rank)) for n in (3, 70_000)]
        for part in parts:
            dist.all_reduce(part)
    for part in parts:
        same(part, torch.full_like(part, float(sum(range(size)))), "coalesced")


def pairs() -> None:
    """send and recv: around the ring both ways at once, tags out of order, from anybody."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 5000, 1_500_007):
        works, found = [], []
        for tag, (to, source) in enumerate(((after, before), (before, after))):
            got = torch.empty(count)
            works.append(dist.isend(torch.full((count,), float(10 * rank + tag)), to, tag=tag))
            works.append(dist.irecv(got, source, tag=tag))
            found.append((got, float(10 * source + tag)))
        for work in reversed(works):
            assert work is not None
            work.wait()
        for got, value in found:
            same(got, torch.full((count,), value), ("ring", count))
    if rank == 0:
        ranks = []
        for _ in range(size - 1):
            got = torch.empty(3)
            source = dist.recv(got, tag=7)
            same(got, torch.full((3,), float(source)), "from anybody")
            ranks.append(source)
        assert sorted(ranks) == list(range(1, size)), ranks
    else:
        dist.send(torch.full((3,), float(rank)), 0, tag=7)
    got = torch.empty(70_000)
    operations = [
        dist.P2POp(dist.isend, torch.full((70_000,), float(rank)), after),
        dist.P2POp(dist.irecv, got, before),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(got, torch.full((70_000,), float(before)), "batch")
    holes = torch.zeros(6, 4)[:, ::2]
    if rank == 0:
        dist.send(torch.arange(12.0).reshape(2, 6).t(), 1)
    elif rank == 1:
        dist.recv(holes, 0)
        same(holes, torch.arange(12.0).reshape(2, 6).t(), "a view with holes")


def unasked() -> None:
    """Messages that the network carries in one piece, before anybody asks for them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    works = [dist.isend(torch.full((50_000,), float(tag)), after, tag=tag) for tag in range(6)]
    dist.barrier()
    for tag in reversed(range(6)):
        got = torch.empty(50_000)
        dist.recv(got, before, tag=tag)
        same(got, torch.full((50_000,), float(tag)), ("early", tag))
    for work in works:
        assert work is not None
        work.wait()


def splits() -> None:
    """torch.distributed.split_group, which asks for a device; two groups at once, one rank left."""
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    assert world is not None
    groups = [[r for r in range(size - 1) if r % 2 == half] for half in (0, 1)]
    limit = timedelta(seconds=60)
    for _ in range(2):  # one end of a group serves all devices; the next split is another group
        world.bound_device_id = torch.device("cuda:0")
        try:
            ours = dist.split_group(
                split_ranks=[ranks for ranks in groups if ranks] or [[0]],
                timeout=limit,
                pg_options=torch._C._distributed_c10d.Backend.Options("smddp", limit),
            )
        finally:
            world.bound_device_id = None
        if ours is dist.GroupMember.NON_GROUP_MEMBER:  # since torch 2.15; None before
            ours = None
        mine = next((ranks for ranks in groups if rank in ranks), None)
        if mine is None or ours is None:
            assert (mine is None) == (ours is None) or size == 1
            continue
        assert dist.get_process_group_ranks(ours) == mine
        data = torch.full((50_000,), float(rank))
        dist.all_reduce(data, group=ours)
        same(data, torch.full_like(data, float(sum(mine))), ("split", mine))


def forks() -> None:
    """A forked process may compute, and is told that the groups are its parent's."""
    child = os.fork()
    if child == 0:
        told = False
        try:
            dist.all_reduce(torch.ones(3))
        except RuntimeError as error:
            told = "in a forked process; make groups after the fork" in str(error)
        os._exit(0 if told else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    data = torch.ones(70_000)
    dist.all_reduce(data)
    same(data, torch.full_like(data, float(dist.get_world_size())), "after a fork")


def callbacks() -> None:
    """A callback may start a collective and wait for its future, as PowerSGD's hook does."""
    size = dist.get_world_size()

    def again(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        work = dist.all_reduce(future.value()[0], async_op=True)
        assert work is not None
        return work.get_future().wait()[0]

    first = [dist.all_reduce(torch.ones(5), async_op=True) for _ in range(3)]
    for future in [work.get_future().then(again) for work in first if work is not None]:
        same(future.wait(), torch.full((5,), float(size * size)), "a collective in a callback")


def as_gloo() -> None:
    """Random groups, sizes and types: what gloo makes of them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dice = random.Random(5)  # the same on all ranks
    for turn in range(12):
        ranks = sorted(dice.sample(range(size), dice.randint(1, size)))
        ours, theirs = (dist.new_group(ranks, backend=name) for name in ("smddp", "gloo"))
        shape = (dice.choice([1, 7, 64, 300]), dice.choice([1, 13, 1000]))
        kind = dice.choice([torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8])
        root = dice.choice(ranks)
        if rank not in ranks:
            continue
        mine = values(shape, kind, 100 * turn + rank)
        for call in (
            lambda data, group: dist.all_reduce(data, ReduceOp.SUM, group),
            lambda data, group: dist.all_reduce(data, ReduceOp.MAX, group),
            lambda data, group, root=root: dist.broadcast(data, root, group),
        ):
            results = [mine.clone(), mine.clone()]
            for data, group in zip(results, (ours, theirs), strict=True):
                call(data, group)
            same(*results, (turn, ranks, shape, kind))
        wholes = [torch.empty(len(ranks) * shape[0], shape[1], dtype=kind) for _ in range(2)]
        for whole, group in zip(wholes, (ours, theirs), strict=True):
            dist.all_gather_into_tensor(whole, mine, group)
        same(*wholes, ("all_gather", turn))
        parts = [torch.empty(shape, dtype=kind) for _ in range(2)]
        for part, group in zip(parts, (ours, theirs), strict=True):
            dist.reduce_scatter_tensor(part, wholes[0], ReduceOp.SUM, group)
        same(*parts, ("reduce_scatter", turn))


def report(*checks: Callable[[], None]) -> None:
    for check in checks:
        check()
        print(f"rank {dist.get_rank()}: {check.__name__} hold", flush=True)


def collectives() -> None:
    report(
        reductions,
        movements,
        layouts,
        same_bits,
        asynchronous,
        pairs,
        unasked,
        splits,
        forks,
        callbacks,
    )


def no_efa() -> None:
    """Asks for a provider that is not there: an error on every rank, and no other is taken."""
    os.environ["SMDDP_FABRIC_PROVIDER"] = "efa"
    with pytest.raises(ValueError, match=r'offers no provider "efa".* finds: .*tcp'):
        dist.new_group(backend="smddp")


def hosts() -> None:
    """Runs all checks between hosts."""
    collectives()
    report(as_gloo, no_efa, training)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


def trained(wrap: Callable[[nn.Module], nn.Module]) -> list[float]:
    """Losses of some steps, over a loader whose workers are forked."""
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(160, 8), torch.randint(0, 4, (160,)))
    loader = DataLoader(
        data, 10, sampler=DistributedSampler(data), num_workers=2, multiprocessing_context="fork"
    )
    model = wrap(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.data)
            losses.append(loss.item())
    return losses


def training() -> None:
    """DDP and FSDP2 as they are give the losses that they give on gloo."""
    gloo = dist.new_group(backend="gloo")

    def sharded(backend: str) -> Callable[[nn.Module], nn.Module]:
        mesh = (
            dist.init_device_mesh("cpu", (dist.get_world_size(),)) if backend == "smddp" else None
        )
        if mesh is None:
            mesh = dist.DeviceMesh.from_group(gloo, "cpu")
        return lambda model: fully_shard(model, mesh=mesh)

    ours = trained(DistributedDataParallel)
    theirs = trained(lambda model: DistributedDataParallel(model, process_group=gloo))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    print(f"rank {dist.get_rank()}: DDP {ours[-1]:.6f}", flush=True)
    ours = trained(sharded(dist.group.WORLD))
    theirs = trained(sharded(gloo))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    print(f"rank {dist.get_rank()}: FSDP2 {ours[-1]:.6f}", flush=True)


def main() -> None:
    jobs = {"collectives": collectives, "training": training, "hosts": hosts}
    dist.init_process_group("smddp")
    jobs[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
