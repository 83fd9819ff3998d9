# SPDX-License-Identifier: Apache-2.0
"""Rank 0, in whose process the job's store is, ends while the others wait for it in a pair that was
never connected, and in a barrier that counts ranks by the store; or, with "first_message", ends in
good order before the others begin to talk to each other."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist


def tell(text: str) -> None:
    """In one write, so that no other rank's line gets between it and its end."""
    sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()


def first_message(rank: int) -> None:
    """Ends for rank 0 in the usual way."""
    others = dist.new_group([1, 2], backend="smddp")
    if rank == 0:
        return
    try:
        while True:  # until the store is gone, which nothing but its use tells
            dist.distributed_c10d._get_default_store().check(["any"])
            time.sleep(0.01)
    except RuntimeError:
        pass
    start = time.monotonic()
    try:
        if rank == 1:
            dist.send(torch.empty(3), 2, others)
        else:
            dist.recv(torch.empty(3), 1, others)
    except RuntimeError as error:
        tell(f"rank {rank} was told after {time.monotonic() - start:.1f} s: {error}")
    os._exit(0)


def while_waiting(rank: int) -> None:
    if rank == 0:
        time.sleep(1)
        os._exit(0)
    try:
        if rank == 1:
            dist.recv(torch.empty(3), 0)
        else:
            dist.group.WORLD.monitored_barrier(wait_all_ranks=True)
    except RuntimeError as error:
        tell(f"rank {rank} was told: {error}")
    os._exit(0)  # a group whose store is lost has nobody to say goodbye to


if __name__ == "__main__":
    dist.init_process_group("smddp", timeout=timedelta(seconds=60))
    {"first_message": first_message}.get("".join(sys.argv[1:]), while_waiting)(dist.get_rank())
