# SPDX-License-Identifier: Apache-2.0
"""Calls on smddp that cannot work or do not come to an end, on warm ranks: what each rank is told.

Every fault has a group of its own, since a group that has failed is broken. The job's own group is
gloo's: its barriers put the ranks in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from smdistributed._smddp import leave
from smdistributed.dataparallel.torch import backend_registration
from torch import nn
from torch.distributed import ReduceOp
from torch.nn.parallel import DistributedDataParallel

backend_registration.register()  # torch_smddp would set variables that the next smp.init reads

LONG, SHORT = timedelta(seconds=60), timedelta(seconds=2)


def group_of_all(timeout: timedelta = LONG) -> dist.ProcessGroup:
    """Group whose ranks are together when it is there; making it takes as long as it takes."""
    group = dist.new_group(backend="smddp", timeout=LONG)
    if timeout != LONG:  # torch's debug mode has no set_timeout
        group.set_timeout(timeout)
    dist.barrier()
    return group


def told(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # the tests look at its kind
        return f"{type(error).__name__}: {error}"
    return "no error"


def ones(count: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=kind)


def gathers(group: dist.ProcessGroup, count: int) -> None:
    outputs = [ones(count) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, ones(count), group)


def swaps(group: dist.ProcessGroup, rank: int) -> None:
    """Rank 1 wants two rows of rank 0, which sends one to each."""
    rows = [2 if rank == 1 and peer == 0 else 1 for peer in range(dist.get_world_size())]
    target = torch.empty(sum(rows), 3)
    dist.all_to_all_single(target, torch.ones(len(rows), 3), rows, group=group)


#: Calls of the ranks; rank 2, where nothing else is said, does not do as the others.
MISMATCHES: dict[str, Callable[[dist.ProcessGroup, int], object]] = {
    "types": lambda group, rank: dist.all_reduce(
        ones(5, torch.float64 if rank == 2 else torch.float32), group=group
    ),
    "types of one size": lambda group, rank: dist.broadcast(
        ones(5, torch.int32 if rank == 2 else torch.float32), 0, group
    ),
    # Not by torch.distributed, which passes complex numbers on as real ones.
    "types of one width": lambda group, rank: group.broadcast(
        ones(5, torch.complex64) if rank == 2 else ones(10), 0
    ).wait(),
    "types without arithmetic": lambda group, rank: dist.broadcast(
        ones(6, torch.float8_e5m2 if rank == 2 else torch.float8_e4m3fn), 0, group
    ),
    "types of what is swapped": lambda group, rank: dist.all_to_all_single(
        ones(8, torch.int32 if rank == 2 else torch.float32),
        ones(8, torch.int32 if rank == 2 else torch.float32),
        group=group,
    ),
    "types of much": lambda group, rank: dist.all_reduce(
        ones(500_000, torch.bfloat16 if rank == 2 else torch.float16), group=group
    ),
    "sizes": lambda group, rank: gathers(group, 6 if rank == 2 else 5),
    "operations": lambda group, rank: dist.all_reduce(
        ones(5), ReduceOp.MAX if rank == 2 else ReduceOp.SUM, group
    ),
    "roots": lambda group, rank: dist.broadcast(ones(5), 1 if rank == 2 else 0, group),
    "calls": lambda group, rank: (
        dist.barrier(group) if rank == 2 else dist.all_reduce(ones(5), group=group)
    ),
    "rows of a pair": swaps,
}


def mismatches() -> dict[str, str]:
    rank = dist.get_rank()
    found = {}
    for name, call in MISMATCHES.items():
        group = group_of_all()
        found[name] = told(lambda: call(group, rank))  # noqa: B023 - called at once
    return found


def refused() -> dict[str, str]:
    """Arguments that can never work: an error of this rank alone, and the group goes on."""
    group, size = group_of_all(), dist.get_world_size()
    outputs = [ones(4) for _ in range(size)]
    found = {
        "gathered sizes": told(lambda: dist.all_gather(outputs, ones(5), group)),
        "a part too large": told(lambda: dist.reduce_scatter_tensor(ones(5), ones(5), group=group)),
        "bits of floats": told(lambda: dist.all_reduce(ones(5), ReduceOp.BAND, group)),
        "sparse": told(lambda: dist.all_reduce(ones(3).to_sparse(), ReduceOp.MAX, group)),
    }
    data = ones(5)
    dist.all_reduce(data, group=group)
    assert torch.equal(data, torch.full((5,), float(size)))
    return found


def received_others() -> dict[str, str]:
    """Rank 0 expects of rank 1 more and less than what comes, at once and in parts, and another
    type."""
    group, rank, found = group_of_all(), dist.get_rank(), {}
    for name, sent, expected in (
        ("less", 3, 5),
        ("more", 5, 3),
        ("much less", 300_000, 300_001),
        ("much more", 300_001, 300_000),
    ):
        if rank == 0:
            found[name] = told(lambda: dist.recv(ones(expected), 1, group))  # noqa: B023
        elif rank == 1:
            dist.send(ones(sent), 0, group)
    if rank == 0:
        found["type"] = told(lambda: dist.recv(ones(3).int(), 1, group))
        found["type of any"] = told(lambda: dist.recv(ones(3).int(), None, group))
    elif rank == 1:
        dist.send(ones(3), 0, group)
        dist.send(ones(3), 0, group)
    for tag in range(2):  # nothing of it is left, and the group goes on
        if rank == 1:
            dist.send(torch.full((4,), float(tag)), 0, group, tag=tag)
        elif rank == 0:
            data = ones(4)
            dist.recv(data, 1, group, tag=tag)
            assert torch.equal(data, torch.full((4,), float(tag)))
    dist.barrier(group)
    return found


def aborted() -> dict[str, str]:
    rank, found = dist.get_rank(), {}

    group = group_of_all()
    work = None if rank == 3 else dist.all_reduce(ones(100_000), group=group, async_op=True)
    dist.barrier()
    assert work is None or not work.is_completed()
    dist.barrier()  # all have looked
    if rank == 3:
        group.abort()
    found["by another rank"] = told(work.wait if work else lambda: dist.barrier(group))
    found["afterwards"] = told(lambda: dist.all_reduce(ones(3), group=group))

    group, texts = group_of_all(), []
    if rank == 0:  # a call that runs in its caller's thread, and waits for ranks that never come
        waiter = threading.Thread(
            target=lambda: texts.append(told(lambda: group.allreduce([ones(3)]).wait()))
        )
        waiter.start()
        group.abort()
        waiter.join()
        found["by another thread"] = texts[0]
    dist.barrier()

    group = group_of_all()
    works = [dist.irecv(ones(3), (rank + 1) % 4, group) for _ in range(2)]
    dist.barrier()
    if rank == 2:
        group.abort()
    found["a receive"] = " ".join(told(work.wait) for work in works if work is not None)
    return found


def destroyed() -> dict[str, str]:
    """The group ends while a call waits for a rank that never comes: after the group's timeout."""
    rank, found = dist.get_rank(), {}
    group = group_of_all(SHORT)
    start = time.monotonic()
    work = None if rank == 3 else dist.all_reduce(ones(3), group=group, async_op=True)
    if rank == 3:
        dist.barrier()
    dist.destroy_process_group(group)
    if work is not None:
        found["pending"] = told(work.wait)
        dist.barrier()
    found["seconds"] = f"{time.monotonic() - start:.1f}"
    return found


def late() -> dict[str, str]:
    """Rank 3 does not come. Where a timeout can be given."""
    rank, found = dist.get_rank(), {}
    options = dist.AllreduceOptions()
    options.timeout = SHORT
    calls: dict[str, Callable[[dist.ProcessGroup], object]] = {
        "timeout of the group": lambda group: dist.all_gather(
            [ones(3) for _ in range(4)], ones(3), group=group
        ),
        "timeout of the call": lambda group: group.allreduce([ones(3)], options).wait(),
        "a receive": lambda group: dist.recv(ones(3), 3, group, tag=7),
    }
    for name, call in calls.items():
        group = group_of_all(LONG if name == "timeout of the call" else SHORT)
        if rank != 3:
            found[name] = told(lambda: call(group))  # noqa: B023 - called at once
        dist.barrier()

    group, data = group_of_all(), ones(3)
    work = None if rank == 3 else dist.all_reduce(data, group=group, async_op=True)
    if work is not None:
        found["timeout of the wait"] = told(lambda: work.wait(timedelta(milliseconds=100)))
    dist.barrier()
    if rank == 3:  # it is not too late: only that wait has ended
        dist.all_reduce(data, group=group)
    else:
        work.wait()
    assert torch.equal(data, torch.full((3,), 4.0))
    return found


def sequence_numbers() -> list[int]:
    """Behind each of some calls, of which some are not waited for at once. Of the backend: the
    group's own function knows none but torch's backends."""
    group, numbers = group_of_all(), []
    backend = group._get_backend(torch.device("cpu"))
    numbers.append(backend._get_sequence_number_for_group())
    for count in (3, 100_000):
        work = dist.all_reduce(ones(count), group=group, async_op=True)
        numbers.append(backend._get_sequence_number_for_group())
        assert work is not None
        work.wait()
    dist.barrier(group)
    numbers.append(backend._get_sequence_number_for_group())
    return numbers


def coalesced() -> None:
    """Several calls as one work: each of them does what it does alone."""
    group, rank, size = group_of_all(), dist.get_rank(), dist.get_world_size()
    counts = (3, 0, 70_000)
    for asynchronous in (False, True):
        parts = [torch.full((count,), rank + 1.0) for count in counts]
        wholes = [torch.empty(size * count) for count in counts]
        with dist._coalescing_manager(group, async_ops=asynchronous) as manager:
            for whole, part in zip(wholes, parts, strict=True):
                dist.all_gather_into_tensor(whole, part, group)
        if asynchronous:
            manager.wait()
        for whole, count in zip(wholes, counts, strict=True):
            assert torch.equal(whole, torch.arange(1.0, size + 1).repeat_interleave(count))

        sums = [torch.empty(count) for count in counts]
        with dist._coalescing_manager(group, async_ops=asynchronous) as manager:
            for whole, part in zip(wholes, sums, strict=True):
                dist.reduce_scatter_tensor(part, whole, ReduceOp.SUM, group)
        if asynchronous:
            manager.wait()
        for part, count in zip(sums, counts, strict=True):
            assert torch.equal(part, torch.full((count,), size * (rank + 1.0)))

        for part in parts:
            part.fill_(rank + 1.0)
        with dist._coalescing_manager(group, async_ops=asynchronous) as manager:
            for part in parts:
                dist.all_reduce(part, ReduceOp.MAX, group)
        if asynchronous:
            manager.wait()
        for part in parts:
            assert torch.equal(part, torch.full_like(part, float(size)))


def monitored() -> dict[str, str]:
    """Rank 2 leaves the group, and rank 3 does not come."""
    rank, found = dist.get_rank(), {}
    for wait_all_ranks in (False, True):
        name, group = f"wait_all_ranks={wait_all_ranks}", group_of_all()
        for _ in range(2):
            group.monitored_barrier(LONG, wait_all_ranks=wait_all_ranks)
        if rank == 2:
            dist.destroy_process_group(group)
        dist.barrier()
        if rank < 2:
            found[name] = told(lambda: group.monitored_barrier(SHORT, wait_all_ranks))  # noqa: B023
            found["torch.distributed"] = told(lambda: dist.monitored_barrier(group))  # noqa: B023
        dist.barrier()
        if rank == 3:
            found[name] = told(lambda: dist.barrier(group))  # noqa: B023 - too late
    return found


def left() -> dict[str, str]:
    """Rank 3 leaves a group in good order, and then 2 and 1: what is told to who sends to them or
    receives, before and after they have left; what they sent before arrives."""
    rank, found = dist.get_rank(), {}
    group = group_of_all()
    start = time.monotonic()
    waiting = dist.irecv(ones(3), 3, group) if rank == 1 else None
    any_rank = dist.irecv(ones(3), None, group, tag=9) if rank == 0 else None
    if rank == 3:
        sent = [dist.isend(torch.full((count,), 7.0), 0, group) for count in (5, 5, 5000)]
        received = dist.irecv(ones(1), 0, group, tag=1)
        for work in (*sent, received):
            assert work is not None
            work.wait()
        dist.destroy_process_group(group)
    elif rank == 0:
        for count in (5, 5):
            data = ones(count)
            dist.recv(data, 3, group)
            assert torch.equal(data, torch.full((count,), 7.0))
        dist.send(ones(1), 3, group, tag=1)
    dist.barrier()  # rank 3 has left
    if rank == 0:
        data = ones(5000)
        dist.recv(data, 3, group)  # sent before it left
        assert torch.equal(data, torch.full((5000,), 7.0))
        found["a receive afterwards"] = told(lambda: dist.recv(ones(3), 3, group))
        found["a send to a rank that was heard of"] = told(lambda: dist.send(ones(3), 3, group))
        found["a long send"] = told(lambda: dist.send(ones(100_000), 3, group))
    elif rank == 2:
        found["a send"] = told(lambda: dist.send(ones(3), 3, group))
    if waiting is not None:
        found["a receive"] = told(waiting.wait)
    dist.barrier()
    if rank in (0, 1):  # the others' messages go on
        data = torch.full((3,), float(rank))
        if rank == 0:
            dist.send(data, 1, group)
        else:
            dist.recv(data, 0, group)
            assert torch.equal(data, torch.zeros(3))
    dist.barrier()
    if rank in (1, 2):
        dist.destroy_process_group(group)
    if any_rank is not None:
        found["a receive from any"] = told(any_rank.wait)
    found["seconds"] = f"{time.monotonic() - start:.1f}"
    dist.barrier()
    return found


def with_details() -> str:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: torch compares all calls by itself before ours does."""
    before, rank, size = dist.get_debug_level(), dist.get_rank(), dist.get_world_size()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = group_of_all()
        wrapped = type(group._get_backend(torch.device("cpu"))).__name__
        assert "Wrapper" in wrapped, wrapped
        data, whole = torch.full((5,), rank + 1.0), torch.empty(5 * size)
        dist.all_gather_into_tensor(whole, data, group)
        assert torch.equal(whole, torch.arange(1.0, size + 1).repeat_interleave(5))
        dist.reduce_scatter_tensor(data, whole, group=group)
        assert torch.equal(data, torch.full((5,), size * (rank + 1.0)))
        dist.broadcast(data, 0, group)
        dist.barrier(group)
        model = DistributedDataParallel(nn.Linear(3, 2), process_group=group)
        model(torch.full((4, 3), float(rank))).sum().backward()
        means = torch.full((2, 3), 4.0 * sum(range(size)) / size)
        assert torch.equal(model.module.weight.grad, means)
        return told(lambda: dist.all_reduce(ones(6 if rank == 2 else 5), group=group))
    finally:
        dist.set_debug_level(before)


def ended_with_a_call_pending(failed: bool) -> str:
    """Rank 3 ends as a process does, with a call under way that the others make later."""
    group = group_of_all()
    data = ones(100_000)
    if dist.get_rank() == 3:
        work = dist.all_reduce(data, group=group, async_op=True)
        end = threading.Thread(target=leave, args=(group._get_backend(data.device), failed))
        end.start()
        if failed:
            end.join()
        dist.barrier()
        end.join()
    else:
        dist.barrier()
        work = dist.all_reduce(data, group=group, async_op=True)
    text = told(work.wait)
    assert failed or torch.equal(data, torch.full((100_000,), 4.0))
    dist.barrier()
    return text
