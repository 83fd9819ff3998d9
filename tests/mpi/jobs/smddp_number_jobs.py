# SPDX-License-Identifier: Apache-2.0
"""Numbers that sums and orders are easily wrong about, in every call of smddp that reduces: NaN,
and averages of what adds up to more than the type holds. On warm ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from smdistributed.dataparallel.torch import backend_registration
from torch.distributed import ReduceOp

backend_registration.register()  # torch_smddp would set variables that the next smp.init reads

#: Elements that go with the mailboxes, and that take several rounds; neither divides by vectors.
COUNTS = (13, 40_003)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: A type, and what all ranks give on average.
LARGE = {
    torch.float16: 65_504.0,
    torch.int8: -128,
    torch.uint8: 255,
    torch.int16: 32_767,
    torch.int32: 2**31 - 1,
    torch.int64: -(2**63),
}


def all_reduce(mine: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    dist.all_reduce(mine, op, group())
    return mine


def coalesced(mine: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    halves = list(mine.split(mine.numel() // 2 + 1))
    with dist._coalescing_manager(group()):
        for half in halves:
            dist.all_reduce(half, op, group())
    return mine


def reduce(mine: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    """To each rank, whose turn it is; this one keeps its own."""
    kept = mine.clone()
    for root in range(dist.get_world_size()):
        turn = mine.clone()
        dist.reduce(turn, root, op, group())
        if root == dist.get_rank():
            kept = turn
    return kept


def reduce_scatter_tensor(mine: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    part = torch.empty_like(mine)
    dist.reduce_scatter_tensor(part, mine.repeat(dist.get_world_size()), op, group())
    return part


def reduce_scatter(mine: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    part = torch.empty_like(mine)
    dist.reduce_scatter(part, [mine] * dist.get_world_size(), op, group())
    return part


def reduce_scatter_unequal(mine: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    """The last rank gets one element less."""
    size = dist.get_world_size()
    parts = [mine] * (size - 1) + [mine[1:].contiguous()]
    part = torch.empty_like(parts[dist.get_rank()])
    dist.reduce_scatter(part, parts, op, group())
    return part if part.numel() == mine.numel() else torch.cat([mine[:1], part])


CALLS: tuple[Callable[[torch.Tensor, ReduceOp], torch.Tensor], ...] = (
    all_reduce,
    coalesced,
    reduce,
    reduce_scatter_tensor,
    reduce_scatter,
    reduce_scatter_unequal,
)
_groups: list[dist.ProcessGroup] = []


def group() -> dist.ProcessGroup:
    return _groups[0]


def in_all_calls(check: Callable[[Callable[[torch.Tensor, ReduceOp], torch.Tensor]], None]) -> None:
    _groups[:] = [dist.new_group(backend="smddp")]
    for call in CALLS:
        check(call)


def with_nan(rank: int, count: int, kind: torch.dtype) -> torch.Tensor:
    """Small numbers and infinities, with NaN at one rank of four, in turn; every fifth has none.
    The first of all, which a call may leave to its owner, is alike."""
    values = torch.arange(count, dtype=torch.float64).add(3 * rank).remainder(7)
    values[2::5] = float("inf") if rank % 2 else -float("inf")
    places = torch.arange(count)
    values[(places % 5 == rank) | ((places // 5) % 11 == rank)] = float("nan")
    values[0] = 1
    return values.to(kind)


def extremes() -> None:
    """As torch.amax and torch.amin of all ranks' tensors have it."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def check(call: Callable[[torch.Tensor, ReduceOp], torch.Tensor]) -> None:
        for kind in FLOATS:
            for count in COUNTS:
                every = torch.stack([with_nan(r, count, kind) for r in range(size)])
                assert every.isnan().any() and not every.isnan().all()
                for op, expected in ((ReduceOp.MAX, every.amax(0)), (ReduceOp.MIN, every.amin(0))):
                    ours = call(every[rank].clone(), op)
                    same = (ours == expected) | (ours.isnan() & expected.isnan())
                    where = (~same).nonzero().flatten().tolist()
                    assert not where, (call.__name__, kind, count, op, where[:5])

    in_all_calls(check)


def averages() -> None:
    """Checks that the average of one value on all ranks is that value."""

    def check(call: Callable[[torch.Tensor, ReduceOp], torch.Tensor]) -> None:
        for kind, value in LARGE.items():
            for count in COUNTS:
                mine = torch.full((count,), value, dtype=kind)
                ours = call(mine.clone(), ReduceOp.AVG)
                assert torch.equal(ours, mine), (call.__name__, kind, count, ours)

    in_all_calls(check)
    sparse_averages()


def sparse_averages() -> None:
    for kind, value in LARGE.items():
        if kind == torch.int64:
            continue  # the largest have no wider type to be added in
        mine = torch.zeros(50, dtype=kind)
        mine[::7] = value
        ours = mine.to_sparse()
        dist.all_reduce(ours, ReduceOp.AVG, group())
        assert ours.dtype == kind
        assert torch.equal(ours.to_dense(), mine), (kind, ours)
    odd = torch.tensor([-(2 + dist.get_rank() % 2)]).to_sparse()  # -2 and -3: -2.5 on average
    dist.all_reduce(odd, ReduceOp.AVG, group())
    assert odd.to_dense().item() == -2  # towards zero, as dense ones
