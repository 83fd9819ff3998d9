# SPDX-License-Identifier: Apache-2.0
"""A script that initialises torch.distributed itself, with ranks in another order than MPI's."""

from __future__ import annotations

import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist

size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
rank = size - 1 - int(os.environ["OMPI_COMM_WORLD_RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)

smp.init({"ddp": True, "partitions": 2})

assert smp.rank() == dist.get_rank() == rank
assert smp.allgather(rank, smp.WORLD) == list(range(size))
total = torch.ones(1)
dist.all_reduce(total, group=smp.get_dp_process_group())
assert total.item() == size // 2
smp.shutdown()
assert dist.is_initialized()
dist.destroy_process_group()
print("joined torch.distributed", flush=True)
