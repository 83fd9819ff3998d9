# SPDX-License-Identifier: Apache-2.0
"""Calls on smddp of more bytes than 31 bits can count, for two ranks: needs 15 GB of memory."""

from __future__ import annotations

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist

COUNT = 2**31 + 101
#: Places at which tensors of zeros hold something else: the ends, and both sides of 2^31.
PLACES = [0, 1, 2**30, 2**31 - 1, 2**31, COUNT - 1]


def marked(count: int, value: int) -> torch.Tensor:
    data = torch.zeros(count, dtype=torch.int8)
    for place in PLACES:
        if place < count:
            data[place] = value
    return data


def holds(data: torch.Tensor, value: int) -> None:
    places = [place for place in PLACES if place < len(data)]
    assert [int(data[place]) for place in places] == [value] * len(places)
    # In parts: what counts makes a copy.
    assert sum(int(part.count_nonzero()) for part in data.split(2**26)) == len(places)


def main() -> None:
    dist.init_process_group("smddp")
    rank = dist.get_rank()
    data = marked(COUNT, rank + 1)
    dist.all_reduce(data)
    holds(data, 3)
    data = marked(COUNT, rank + 1)
    dist.broadcast(data, 1)
    holds(data, 2)
    data[PLACES] = rank + 5
    if rank == 0:
        dist.send(data, 1)
    else:
        dist.recv(data, 0)
        holds(data, 5)
    del data
    part, whole = marked(COUNT // 2, rank + 1), torch.zeros(2 * (COUNT // 2), dtype=torch.int8)
    dist.all_gather_into_tensor(whole, part)
    for peer, theirs in enumerate(whole.chunk(2)):
        holds(theirs, peer + 1)
    dist.reduce_scatter_tensor(part, whole)
    holds(part, 2 * (rank + 1))
    print(f"rank {rank}: large calls hold", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
