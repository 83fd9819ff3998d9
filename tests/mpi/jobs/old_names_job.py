# SPDX-License-Identifier: Apache-2.0
"""A script of version 1.3: the old import paths and names, with what they must warn of."""

from __future__ import annotations

import warnings

import torch
from torch import nn


def warned(what: str, seen: list[warnings.WarningMessage]) -> None:
    """One warning, laid to this file's account."""
    (one,) = [w for w in seen if issubclass(w.category, DeprecationWarning) and what in str(w)]
    assert one.filename == __file__, one
    print(f"warned: {one.message}", flush=True)


with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import smdistributed.dataparallel.torch.distributed as dist
warned("dataparallel.torch.distributed is deprecated", seen)

from smdistributed.dataparallel.torch import parallel  # noqa: E402 - behind the warning
from smdistributed.dataparallel.torch.parallel.distributed import (  # noqa: E402
    DistributedDataParallel,
)


def calls(rank: int, size: int) -> None:
    """Each documented one, in each documented form."""
    operations = dist.ReduceOp
    last, mean = float(size), (size + 1) / 2
    for operation, expected in (
        *((operations.SUM, size * mean), (None, size * mean), (operations.AVERAGE, mean)),
        *((operations.MIN, 1.0), (operations.MAX, last)),
    ):
        data = torch.full((3,), rank + 1.0)
        dist.all_reduce(data, operation, dist.group.WORLD, False)
        assert torch.equal(data, torch.full((3,), expected)), operation
    data = torch.full((3,), rank + 1.0)
    dist.all_reduce(data, async_op=True).wait()
    assert torch.equal(data, torch.full((3,), size * mean))
    for named, expected in (({}, 1.0), ({"src": size - 1, "group": dist.group.WORLD}, last)):
        data = torch.full((3,), rank + 1.0)
        dist.broadcast(data, **named)
        assert torch.equal(data, torch.full((3,), expected))
    everybody = torch.arange(1.0, size + 1)
    parts = [torch.empty(1) for _ in range(size)]
    dist.all_gather(parts, torch.full((1,), rank + 1.0), dist.group.WORLD)
    assert torch.equal(torch.cat(parts), everybody)
    found = torch.empty(size)
    dist.all_to_all_single(output_t=found, input_t=torch.full((size,), rank + 1.0))
    assert torch.equal(found, everybody)
    rows = [1] * size
    work = dist.all_to_all_single(found, everybody, rows, rows, dist.group.WORLD, True)
    work.wait()
    assert torch.equal(found, torch.full((size,), rank + 1.0))
    dist.reduce(data, 0)
    dist.barrier(dist.group.WORLD)


def main() -> None:
    assert parallel.DistributedDataParallel is DistributedDataParallel
    assert not dist.is_initialized()
    dist.init_process_group()
    dist.init_process_group()  # a second time, as scripts with several parts did
    assert dist.is_initialized()
    assert torch.distributed.get_backend() == "smddp"
    assert dist.get_local_rank() == dist.get_rank()  # one host

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = DistributedDataParallel(nn.Linear(3, 2), [], None, False, dist.group.WORLD, 12)
    warned("parallel.DistributedDataParallel is deprecated", seen)
    assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
    assert not model.broadcast_buffers
    assert model.bucket_bytes_cap == 12 * 2**20
    rank, size = dist.get_rank(dist.group.WORLD), dist.get_world_size(dist.group.WORLD)
    model(torch.full((4, 3), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((2, 3), 4 * (size - 1) / 2))
    calls(rank, size)
    print(f"rank {rank} of {size}: done", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if dist.is_available():
        main()
    else:
        print("no job: training alone", flush=True)
