# SPDX-License-Identifier: Apache-2.0
"""Random calls on smddp and on gloo, on warm ranks: shapes, types, operations, layouts, groups.

Small whole numbers make sums exact in any order, so both must give the same bits. What gloo lacks
is asked of it in other terms: 16-bit integers as longer ones, premultiplied sums as sums.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from smdistributed.dataparallel.torch import backend_registration
from torch.distributed import ReduceOp

backend_registration.register()  # torch_smddp would set variables that the next smp.init reads

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
KINDS = [*FLOATS, *COMPLEX, *INTEGERS]
HALF = dist._make_nccl_premul_sum(0.5)  # type: ignore[attr-defined]
MEANS = [ReduceOp.SUM, ReduceOp.AVG, HALF]
ORDERS = [ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
BITS = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
PRIMES = [2, 3, 127, 4099, 8209, 65_537, 300_007]
Tensors = list[torch.Tensor]


@dataclass
class Group:
    """A group of each backend with the same ranks."""

    ranks: list[int]
    ends: dict[str, dist.ProcessGroup]


@dataclass
class Round:
    """Values that all ranks draw alike, and this rank's place in the group."""

    dice: random.Random
    turn: int
    shape: tuple[int, ...]
    kind: torch.dtype
    operation: ReduceOp | ReduceOp.RedOpType
    ranks: list[int]
    me: int

    @property
    def size(self) -> int:
        return len(self.ranks)

    def values(self, place: int, number: int = 0, shape: tuple[int, ...] | None = None):
        """Contribution of the rank at a place of the group: whole numbers from 0 to 3, or both
        truths."""
        generator = torch.Generator().manual_seed(10_000 * self.turn + 100 * place + number)
        whole = torch.randint(
            0, 4, self.shape if shape is None else shape, generator=generator, dtype=torch.int32
        )
        if self.kind == torch.bool:
            return whole > 1
        if self.kind.is_complex:
            return torch.complex(whole.double(), 3.0 - whole.double()).to(self.kind)
        return whole.to(self.kind)

    def mine(self, number: int = 0) -> torch.Tensor:
        return self.values(self.me, number)

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.kind)


Call = Callable[[Round, dist.ProcessGroup, str], Tensors]


def on(backend: str, call: Call, draw: Round, group: dist.ProcessGroup) -> Tensors:
    """Result of the call; with gloo in terms that it knows."""
    if backend != "gloo":
        return call(draw, group, backend)
    kind = torch.int32 if draw.kind == torch.int16 else draw.kind
    if draw.operation == ReduceOp.AVG and kind.is_complex:
        # gloo divides by a complex number, which rounds more often than once.
        sums = call(replace(draw, operation=ReduceOp.SUM), group, backend)
        return [torch.view_as_complex(torch.view_as_real(one) / draw.size) for one in sums]
    if draw.operation is not HALF:
        return [one.to(draw.kind) for one in call(replace(draw, kind=kind), group, backend)]
    return [one * 0.5 for one in call(replace(draw, operation=ReduceOp.SUM), group, backend)]


def spread(tensor: torch.Tensor, backend: str) -> torch.Tensor:
    """The same values with holes between rows: smddp takes such tensors, gloo gets plain ones."""
    if backend == "gloo" or tensor.dim() == 0:
        return tensor
    wide = torch.empty(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def all_reduce(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    data = spread(draw.mine(), backend)
    dist.all_reduce(data, draw.operation, group)
    return [data]


def reduce(draw: Round, group: dist.ProcessGroup, _backend: str) -> Tensors:
    root, data = draw.dice.randrange(draw.size), draw.mine()
    dist.reduce(data, draw.ranks[root], draw.operation, group)
    return [data] if draw.me == root else []  # nothing is promised on the other ranks


def broadcast(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    data = spread(draw.mine(), backend)
    dist.broadcast(data, draw.ranks[draw.dice.randrange(draw.size)], group)
    return [data]


def all_gather(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    outputs = [spread(draw.empty(), backend) for _ in draw.ranks]
    dist.all_gather(outputs, spread(draw.mine(), backend), group)
    return outputs


def all_gather_into_tensor(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    part = spread(draw.mine().reshape(-1), backend)
    whole = spread(torch.empty(draw.size * part.numel(), dtype=draw.kind), backend)
    dist.all_gather_into_tensor(whole, part, group)
    return [whole]


def reduce_scatter(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    output = spread(draw.empty(), backend)
    inputs = [spread(draw.mine(place), backend) for place in range(draw.size)]
    dist.reduce_scatter(output, inputs, draw.operation, group)
    return [output]


def reduce_scatter_tensor(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    parts = [draw.mine(place).reshape(-1) for place in range(draw.size)]
    whole, part = spread(torch.cat(parts), backend), spread(draw.empty().reshape(-1), backend)
    dist.reduce_scatter_tensor(part, whole, draw.operation, group)
    return [part]


def gather(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    root = draw.dice.randrange(draw.size)
    outputs = [spread(draw.empty(), backend) for _ in draw.ranks] if draw.me == root else None
    if backend == "gloo" and draw.kind.is_complex:  # it has them in all calls but this one
        pairs = [torch.view_as_real(one) for one in outputs] if outputs else None
        dist.gather(torch.view_as_real(draw.mine()), pairs, draw.ranks[root], group)
        return outputs or []
    dist.gather(spread(draw.mine(), backend), outputs, draw.ranks[root], group)
    return outputs or []


def scatter(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    root, output = draw.dice.randrange(draw.size), spread(draw.empty(), backend)
    inputs = [draw.mine(place) for place in range(draw.size)] if draw.me == root else None
    dist.scatter(output, inputs, draw.ranks[root], group)
    return [output]


def all_to_all(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    outputs = [spread(draw.empty(), backend) for _ in draw.ranks]
    inputs = [spread(draw.mine(place), backend) for place in range(draw.size)]
    if backend == "gloo":  # it has no lists here
        whole = torch.empty(draw.size * outputs[0].numel(), dtype=draw.kind)
        dist.all_to_all_single(whole, torch.cat([one.reshape(-1) for one in inputs]), group=group)
        return (
            [part.reshape(draw.shape) for part in whole.chunk(draw.size)] if len(whole) else outputs
        )
    dist.all_to_all(outputs, inputs, group)
    return outputs


def all_to_all_single(draw: Round, group: dist.ProcessGroup, backend: str) -> Tensors:
    """Rows by pair, none among them."""
    rows = [[draw.dice.randrange(40) for _ in draw.ranks] for _ in draw.ranks]
    sent, received = rows[draw.me], [row[draw.me] for row in rows]
    source = spread(draw.values(draw.me, 1, (sum(sent), 3)), backend)
    target = spread(torch.empty(sum(received), 3, dtype=draw.kind), backend)
    dist.all_to_all_single(target, source, received, sent, group)
    return [target]


def around(draw: Round, group: dist.ProcessGroup, _backend: str) -> Tensors:
    """send and recv to the next rank, two tags, the later one asked for first."""
    if draw.size == 1:
        return []
    after = draw.ranks[(draw.me + 1) % draw.size]
    before = draw.ranks[(draw.me - 1) % draw.size]
    works = [dist.isend(draw.mine(tag), after, group, tag=tag) for tag in range(2)]
    found = [draw.empty() for _ in range(2)]
    works += [dist.irecv(found[tag], before, group, tag=tag) for tag in (1, 0)]
    for work in works:
        assert work is not None
        work.wait()
    return found


def objects(draw: Round, group: dist.ProcessGroup, _backend: str) -> Tensors:
    found: list[object] = [None] * draw.size
    dist.all_gather_object(found, {"place": draw.me, "value": draw.mine()}, group)
    dist.barrier(group)
    return [one["value"] for one in found]  # type: ignore[index]


MOVES: list[Call] = [
    *(broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_to_all),
    *(all_to_all_single, around, objects),
]
SUMS: list[Call] = [all_reduce, reduce, reduce_scatter, reduce_scatter_tensor]


def make_groups(dice: random.Random, count: int) -> list[Group]:
    """All ranks, some of them, two and one; both backends."""
    size = dist.get_world_size()
    groups = []
    for number in range(count):
        ranks = sorted(dice.sample(range(size), size if number == 0 else dice.randint(1, size)))
        ends = {name: dist.new_group(ranks, backend=name) for name in ("smddp", "gloo")}
        groups.append(Group(ranks, ends))
    return groups


def operations(call: Call, kind: torch.dtype) -> list[ReduceOp | ReduceOp.RedOpType]:
    if call not in SUMS:
        return [ReduceOp.SUM]
    if kind in COMPLEX:
        return MEANS
    return [*MEANS, *ORDERS] if kind in FLOATS else [ReduceOp.SUM, *ORDERS, *BITS]


def drawn(dice: random.Random, turn: int, group: Group) -> tuple[Call, Round]:
    calls = [*SUMS, *MOVES]  # in turn, each with each type: none is left to chance
    call, kind = calls[turn % len(calls)], KINDS[turn % len(KINDS)]
    shapes = [
        *((), (0,), (1,), (3, 0, 2), (dice.choice(PRIMES),)),
        (dice.randint(1, 30), dice.randint(1, 400)),
        (dice.randint(1, 5), dice.randint(1, 5), dice.randint(1, 5000)),
    ]
    draw = Round(
        dice=dice,
        turn=turn,
        shape=dice.choice(shapes),
        kind=kind,
        operation=dice.choice(operations(call, kind)),
        ranks=group.ranks,
        me=-1,
    )
    return call, draw


def compare(seed: int, rounds: int) -> set[tuple[str, str]]:
    """The calls that were compared on this rank, and on which types."""
    dice = random.Random(seed)
    groups = make_groups(dice, 6)
    compared = set()
    for turn in range(rounds):
        group = dice.choice(groups)
        call, draw = drawn(dice, turn, group)
        start = dice.getrandbits(64)  # a call draws the same for both backends and on all ranks
        if dist.get_rank() not in group.ranks:
            continue
        draw.me = group.ranks.index(dist.get_rank())
        results = {}
        for name, end in group.ends.items():
            draw.dice = random.Random(start)
            results[name] = on(name, call, draw, end)
        where = (seed, turn, call.__name__, draw)
        assert len(results["smddp"]) == len(results["gloo"]), where
        for ours, theirs in zip(results["smddp"], results["gloo"], strict=True):
            assert torch.equal(ours, theirs), (where, ours, theirs)
        compared.add((call.__name__, str(draw.kind).removeprefix("torch.")))
    # The thread of libfabric's endpoint: on one host nothing goes through a socket.
    threads = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    assert "smp-fabric" not in threads, threads
    return compared


def in_four_groups_at_once(seed: int, rounds: int) -> None:
    """All-reduces under way in four groups, each rank waiting for them in an order of its own."""
    dice, rank = random.Random(seed), dist.get_rank()
    groups = [dist.new_group(backend="smddp") for _ in range(4)]
    gloo = dist.new_group(backend="gloo")
    for turn in range(rounds):
        works = []
        for number in range(len(KINDS)):
            place = turn * len(KINDS) + number
            _, draw = drawn(dice, place, Group(list(range(dist.get_world_size())), {}))
            draw.me, draw.operation = rank, dice.choice(operations(all_reduce, draw.kind))
            ours, group = draw.mine(), groups[dice.randrange(4)]
            work = dist.all_reduce(ours, draw.operation, group, async_op=True)
            [theirs] = on("gloo", all_reduce, draw, gloo)
            works.append((work, ours, theirs))
        random.Random(100 * seed + 10 * turn + rank).shuffle(works)
        for work, ours, theirs in works:
            assert work is not None
            work.wait()
            assert torch.equal(ours, theirs), (seed, turn, rank)
