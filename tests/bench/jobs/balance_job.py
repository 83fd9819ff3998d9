# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench balance: DDP averages the gradients of a model whose tensors differ much in
size. Prints what went over each host's interface in each direction, by step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 2
COUNTERS = Path("/sys/class/net/eth0/statistics")


class Model(nn.Module):
    """An embedding of 64 MB beside layers from 1 KB to 1 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(62_500, 256)
        self.layers = nn.ModuleList(nn.Linear(width, 131) for width in (3, 37, 511, 1009, 1999))

    def forward(self) -> torch.Tensor:
        return sum(parameter.sum() for parameter in self.parameters())


def counted() -> torch.Tensor:
    counts = [int((COUNTERS / f"{way}_bytes").read_text()) for way in ("tx", "rx")]
    return torch.tensor(counts, dtype=torch.int64)


def main() -> None:
    dist.init_process_group("smddp")
    model = DistributedDataParallel(Model())
    model().backward()  # connections and buckets are made
    dist.barrier()
    before = counted()
    for _ in range(STEPS):
        model().backward()
    dist.barrier()
    moved = (counted() - before).div(STEPS)
    ranks = [torch.empty_like(moved) for _ in range(dist.get_world_size())]
    dist.all_gather(ranks, moved)
    if dist.get_rank() == 0:
        hosts = ranks[:: int(os.environ["LOCAL_WORLD_SIZE"])]
        tensors = [parameter.nbytes for parameter in model.parameters()]
        print("RESULT " + json.dumps({"hosts": [h.tolist() for h in hosts], "tensors": tensors}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
