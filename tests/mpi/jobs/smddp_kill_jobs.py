# SPDX-License-Identifier: Apache-2.0
"""smddp when ranks are killed or do not come: `faults` starts its own four ranks, `host VICTIM`
is one rank of a launcher's."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from datetime import timedelta

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from torch import multiprocessing


def host(victim: int) -> None:
    """A rank between hosts is killed, and the others say which."""
    dist.init_process_group("smddp")
    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1_000_000))
    except dist.DistBackendError as error:
        print(f"failed with {error}", flush=True)
        os._exit(0)  # no goodbye: the group is broken
    raise AssertionError("the killed rank was not missed")


def _fault(rank: int, size: int, fault: str, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", size)
    limit = timedelta(seconds=2 if fault == "late" else 60)
    dist.init_process_group("smddp", store=store, rank=rank, world_size=size, timeout=limit)
    dist.all_reduce(torch.ones(3))
    start = time.monotonic()
    try:
        if fault == "killed" and rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "late" and rank == 2:
            dist.all_reduce(torch.ones(3), group=dist.new_group([2], backend="smddp"))
            while not os.path.exists(f"{folder}/1"):
                time.sleep(0.01)
            return
        if fault == "late":
            dist.new_group([2], backend="smddp")
        count = 1_000_000 + (rank if fault == "mismatch" else 0)
        dist.all_reduce(torch.ones(count))
    except dist.DistBackendError as error:
        took = time.monotonic() - start
        with open(f"{folder}/{rank}", "w") as file:
            file.write(f"{took:.1f} {error}")
    os._exit(0)  # no goodbye: the group is broken


def _neighbour(rank: int, _size: int, _name: str, folder: str) -> None:
    """Ranks 0 and 1 are one job, 2 and 3 another. Rank 1 is killed; ranks 2 and 3 go on."""
    job = rank // 2
    store = dist.FileStore(f"{folder}/store{job}", 2)
    dist.init_process_group("smddp", store=store, rank=rank % 2, world_size=2)
    both = dist.FileStore(f"{folder}/both", 4)  # for order alone
    for turn in range(3):
        both.add(f"turn{turn}", 1)
        while both.add(f"turn{turn}", 0) < 4:  # the parent ends what hangs
            time.sleep(0.01)
        data = torch.full((100_000,), float(rank))
        dist.all_reduce(data)
        assert torch.equal(data, torch.full_like(data, float(4 * job + 1))), job
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    text = "no error"
    try:
        dist.all_reduce(torch.ones(100_000))
    except dist.DistBackendError as error:
        text = str(error)
    both.add("seen", 1)
    while both.add("seen", 0) < 3:
        time.sleep(0.01)
    if job == 1:
        data = torch.ones(100_000)
        dist.all_reduce(data)
        assert torch.equal(data, torch.full_like(data, 2.0))
    with open(f"{folder}/{rank}", "w") as file:
        file.write(f"0 {text}")
    os._exit(0)


def faults() -> None:
    """Prints what each rank of four saw of each fault."""
    for fault in ("killed", "late", "mismatch", "neighbours"):
        with tempfile.TemporaryDirectory() as folder:
            # This process has imported everything and done nothing: its children need not import.
            body = _neighbour if fault == "neighbours" else _fault
            processes = multiprocessing.start_processes(
                body, (4, fault, folder), nprocs=4, join=False, start_method="fork"
            ).processes
            for process in processes:
                process.join(120)
                process.kill()
            for rank in range(4):
                if os.path.exists(f"{folder}/{rank}"):
                    with open(f"{folder}/{rank}") as file:
                        print(f"{fault}: rank {rank} after {file.read().splitlines()[0]}")


def main() -> None:
    if sys.argv[1] == "faults":
        faults()
    else:
        host(int(sys.argv[2]))


if __name__ == "__main__":
    main()
