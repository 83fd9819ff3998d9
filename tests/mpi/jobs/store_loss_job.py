# SPDX-License-Identifier: Apache-2.0
"""Rank 0, in whose process the job's store is, ends while the others wait for it in a pair that was
never connected, and in a barrier that counts ranks by the store."""

from __future__ import annotations

import os
import time

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("smddp")
    rank = dist.get_rank()
    if rank == 0:
        time.sleep(1)
        os._exit(0)
    try:
        if rank == 1:
            dist.recv(torch.empty(3), 0)
        else:
            dist.group.WORLD.monitored_barrier(wait_all_ranks=True)
    except RuntimeError as error:
        print(f"rank {rank} was told: {error}".replace("\n", " "), flush=True)
    os._exit(0)  # a group whose store is lost has nobody to say goodbye to


if __name__ == "__main__":
    main()
