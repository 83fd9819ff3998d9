# SPDX-License-Identifier: Apache-2.0
"""Times of a collective on this host: us, gloo and Open MPI by turns in one job of N ranks.

`measure` starts this file under mpirun; rank 0 prints what it measured. A time is the median over
rounds of the slowest rank's mean over the round's calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS = 7
Times = dict[int, dict[str, float]]


def measure(operation: str, ranks: int, sizes: list[int]) -> Times:
    """Seconds by size in bytes and by who."""
    root = Path(__file__).resolve().parent.parent
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "btl", "self,vader", "--mca", "btl_vader_single_copy_mechanism", "none"]
    command += ["-np", str(ranks), str(root / ".venv/bin/python"), __file__, operation]
    built = root / "build" / "release" / "python"
    done = subprocess.run(
        [*command, *map(str, sizes)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(built),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=900,
    )
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {int(size): times for size, times in found.items()}


def _call(operation: str, data: Any, part: Any, group: Any) -> None:
    """MAX, so that numbers stay what they are over thousands of calls."""
    import torch.distributed as dist  # noqa: PLC0415

    if operation == "allreduce":
        dist.all_reduce(data, dist.ReduceOp.MAX, group)
    elif operation == "allgather":
        dist.all_gather_into_tensor(data, part, group)
    else:
        dist.reduce_scatter_tensor(part, data, dist.ReduceOp.MAX, group)


def rank_main(operation: str, sizes: list[int]) -> None:
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401, PLC0415
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from mpi4py import MPI  # noqa: PLC0415

    world = MPI.COMM_WORLD
    dist.init_process_group("smddp")
    gloo = dist.new_group(backend="gloo")
    ranks = dist.get_world_size()
    found: Times = {}
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
        repeats = max(3, min(300, 2**23 // size))
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
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    rank_main(sys.argv[1], [int(size) for size in sys.argv[2:]])
