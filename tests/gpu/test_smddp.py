# SPDX-License-Identifier: Apache-2.0
"""The backend smddp on tensors of a GPU: one rank, and two that share the GPU."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from smdistributed.dataparallel.torch.backend_registration import register
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

BUSY = 50_000_000  #: clock cycles


@pytest.fixture
def alone(gpu: torch.device) -> Iterator[torch.device]:
    register()
    dist.init_process_group(
        "smddp", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(minutes=1)
    )
    yield gpu
    dist.destroy_process_group()


def test_collectives_of_one_rank_leave_tensors_as_they_were(alone: torch.device) -> None:
    for kind in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        data = (torch.arange(100_003, device=alone) % 2).to(kind)
        expected = data.clone()
        whole = torch.empty(1, data.numel(), dtype=kind, device=alone)
        dist.all_reduce(data)
        dist.broadcast(data, 0)
        dist.all_gather_into_tensor(whole, data.view(1, -1))

        assert torch.equal(data, expected)
        assert torch.equal(whole[0], expected)


def test_work_is_in_the_order_of_streams(alone: torch.device) -> None:
    """The sum's input is made late, and its reader comes after the wait, without the host."""
    data = torch.zeros(1 << 22, device=alone)
    torch.cuda._sleep(BUSY)
    data.add_(3)
    work = dist.all_reduce(data, async_op=True)
    assert work is not None
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        work.wait()
        sums = data.sum(dtype=torch.float64)

    other.synchronize()
    assert sums.item() == 3.0 * data.numel()


def test_futures_and_views(alone: torch.device) -> None:
    data = torch.arange(24.0, device=alone).view(4, 6).t()
    work = dist.all_reduce(data, async_op=True)
    assert work is not None

    doubled = work.get_future().then(lambda done: done.value()[0] * 2).wait()

    assert torch.equal(doubled, torch.arange(24.0, device=alone).view(4, 6).t() * 2)


def _share(rank: int, port: int) -> None:
    register()
    torch.cuda.set_device(0)
    dist.init_process_group(
        "smddp",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=2,
        timeout=timedelta(minutes=2),
    )
    data = torch.full((300_001,), float(rank + 1), device="cuda")
    dist.all_reduce(data)
    assert bool((data == 3).all())
    parts = [torch.empty(5, device="cuda") for _ in range(2)]
    dist.all_gather(parts, torch.full((5,), float(rank), device="cuda"))
    assert [part[0].item() for part in parts] == [0.0, 1.0]
    if rank == 0:
        dist.send(torch.arange(1000, device="cuda"), 1)
    else:
        received = torch.empty(1000, dtype=torch.int64, device="cuda")
        dist.recv(received, 0)
        assert torch.equal(received.cpu(), torch.arange(1000))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64).cuda())
    batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(rank)).cuda()
    model(batch).square().mean().backward()
    torch.manual_seed(0)
    plain = nn.Linear(64, 64).cuda()
    both = [torch.randn(32, 64, generator=torch.Generator().manual_seed(r)) for r in range(2)]
    plain(torch.cat(both).cuda()).square().mean().backward()
    for ours, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert expected.grad is not None
        assert torch.allclose(ours.grad, expected.grad, rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()


def test_two_ranks_that_share_a_gpu_go_through_pinned_memory(gpu: torch.device) -> None:
    assert gpu.type == "cuda"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.setdefault("SMDDP_INTERFACE", "lo")
    multiprocessing.spawn(_share, args=(port,), nprocs=2)
