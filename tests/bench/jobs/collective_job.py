# SPDX-License-Identifier: Apache-2.0
"""One rank that times a collective on this host: us, gloo and Open MPI by turns.

Prints seconds by size in bytes and by who: the median over rounds of the slowest rank's mean over
the round's calls.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from mpi4py import MPI

ROUNDS = 15


def _call(operation: str, data: Any, part: Any, group: Any) -> None:
    """MAX, so that numbers stay what they are over thousands of calls."""
    if operation == "allreduce":
        dist.all_reduce(data, dist.ReduceOp.MAX, group)
    elif operation == "allgather":
        dist.all_gather_into_tensor(data, part, group)
    else:
        dist.reduce_scatter_tensor(part, data, dist.ReduceOp.MAX, group)


def main(operation: str, sizes: list[int]) -> None:
    world = MPI.COMM_WORLD
    dist.init_process_group("smddp")
    gloo = dist.new_group(backend="gloo")
    ranks = dist.get_world_size()
    found: dict[int, dict[str, float]] = {}
    for size in sizes:
        data = torch.ones(max(size // 4, 1))
        part = data[: data.numel() // ranks].clone()
        array = data.numpy()
        calls: dict[str, Callable[[], object]] = {
            who: partial(_call, operation, data, part, group)
            for who, group in (("smddp", None), ("gloo", gloo))
        }
        if operation == "allreduce":
            calls["mpi"] = partial(world.Allreduce, MPI.IN_PLACE, array, MPI.MAX)
        # Enough calls that those in which the ranks fall into step count for little.
        repeats = max(4, min(300, 2**25 // size))
        rounds: dict[str, list[float]] = {who: [] for who in calls}
        for turn in range(ROUNDS + 1):  # the first one warms up
            for who, call in calls.items():
                world.Barrier()
                start = time.perf_counter()
                for _ in range(repeats):
                    call()
                took = (time.perf_counter() - start) / repeats
                slowest = world.allreduce(took, MPI.MAX)
                if turn > 0:
                    rounds[who].append(slowest)
        found[size] = {who: sorted(times)[ROUNDS // 2] for who, times in rounds.items()}
    if dist.get_rank() == 0:
        print("RESULT " + json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], [int(size) for size in sys.argv[2:]])
