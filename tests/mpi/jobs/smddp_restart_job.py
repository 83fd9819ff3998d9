# SPDX-License-Identifier: Apache-2.0
"""In the first attempt the last rank is killed when a second group is to be made; the second
attempt uses the same store."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def add(group: dist.ProcessGroup | None, count: int) -> None:
    sums = torch.full((count,), rank + 1.0)
    dist.all_reduce(sums, group=group)
    assert (sums == size * (size + 1) / 2).all(), sums


def be_told() -> None:
    start = time.monotonic()
    try:
        dist.new_group()
    except dist.DistBackendError as error:
        text = f"rank {rank} was told after {time.monotonic() - start:.1f} s: {error}"
        print(text.replace("\n", " "), flush=True)
    sys.stdout.flush()
    os._exit(1)


first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if first:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ends by itself, once it was told
dist.init_process_group("smddp", timeout=timedelta(seconds=60))
for length in (5, 100_000):
    add(None, length)
if first:
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    be_told()
add(dist.new_group(), 100_000)
dist.destroy_process_group()
print(f"rank {rank} is through", flush=True)
