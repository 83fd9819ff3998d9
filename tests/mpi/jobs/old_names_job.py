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


def main() -> None:
    assert parallel.DistributedDataParallel is DistributedDataParallel
    assert dist.is_available()
    assert not dist.is_initialized()
    dist.init_process_group()
    dist.init_process_group()  # a second time, as scripts with several parts did
    assert dist.is_initialized()
    assert torch.distributed.get_backend() == "smddp"
    assert dist.get_local_rank() == dist.get_rank()  # one host

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = DistributedDataParallel(nn.Linear(3, 2), broadcast_buffers=False)
    warned("parallel.DistributedDataParallel is deprecated", seen)
    assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
    size = dist.get_world_size()
    model(torch.full((4, 3), float(dist.get_rank()))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((2, 3), 4 * (size - 1) / 2))
    data = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(data, op=dist.ReduceOp.SUM)
    assert torch.equal(data, torch.full((3,), size * (size + 1) / 2))
    dist.broadcast(data, 0)
    dist.reduce(data, 0)
    dist.all_gather([torch.empty(3) for _ in range(size)], data)
    dist.barrier()
    print(f"rank {dist.get_rank()} of {size}: done", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
