# SPDX-License-Identifier: Apache-2.0
"""Prints where the processes of a job listen while it communicates, as `listens at ADDRESS`, and
`ready` behind the lines of a rank."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist

LISTENS = "0A"


def inodes() -> set[str]:
    """Of the sockets of this process."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(file)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[len("socket:[") : -1])
    return found


def address(text: str) -> str:
    """As the kernel prints it: words of four bytes in the machine's order."""
    words = bytes.fromhex(text)
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def listening() -> list[str]:
    own = inodes()
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and fields[9] in own:
                found.append(address(fields[1].split(":")[0]))
    return sorted(found)


smp.init({"partitions": 2, "ddp": True, "ddp_dist_backend": "smddp"})
model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))


@smp.step
def step(x: torch.Tensor) -> torch.Tensor:
    loss = model(x).sum()
    model.backward(loss)
    return loss


step(torch.ones(4, 4))
smp.allgather(smp.rank(), smp.WORLD)
everybody = dist.new_group(backend="gloo")
dist.all_reduce(torch.ones(1), group=everybody)
smp.barrier()
lines = [f"rank {smp.rank()} listens at {one}" for one in listening()]
print("\n".join([*lines, f"rank {smp.rank()} ready"]), flush=True)
smp.barrier()
