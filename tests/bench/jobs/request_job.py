# SPDX-License-Identifier: Apache-2.0
"""One of two ranks of ci/bench request: an empty module of the other rank is called, gloo alone
sends a tensor there and back, and torch.distributed.rpc calls a function there, by turns. Prints
seconds of a round trip by who. Arguments: numbers in the tensor, calls in a round, rounds, and
"rpc" where that is wanted, which takes ranks of one host."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc

WIDTH, CALLS, ROUNDS = (int(word) for word in sys.argv[1:4])


class Caller(nn.Module):
    """Calls a module that does nothing, CALLS times, looks at what it returns, without which that
    would stay there, and notes how long a call takes."""

    def __init__(self) -> None:
        super().__init__()
        self.far = nn.Identity()
        self.seconds = 0.0

    def forward(self, x):
        start = time.perf_counter()
        for _ in range(CALLS):
            x = self.far(x)
            x[0, 0].item()
        self.seconds = (time.perf_counter() - start) / CALLS
        return x


@smp.step
def our_step(model, batch):
    return model(batch).sum()


def make_ours() -> Callable[[], float]:
    module = Caller()
    smp.set_partition(module.far, 1)
    model = smp.DistributedModel(module)
    batch = torch.randn(1, WIDTH)

    def turn() -> float:
        with torch.no_grad():
            our_step(model, batch)
        return module.seconds

    return turn


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def make_rpc(folder: Path) -> Callable[[], float]:
    """The folder of rank 0 keeps the meeting's store, until all have shut rpc down."""
    rank = dist.get_rank()
    meeting = [str(folder / "store")]
    dist.broadcast_object_list(meeting, 0)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{meeting[0]}")
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    tensor = torch.randn(1, WIDTH)

    def turn() -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(CALLS if rank == 0 else 0):
            rpc.rpc_sync("rank1", same, (tensor,))
        seconds = (time.perf_counter() - start) / CALLS
        dist.barrier()
        return seconds

    return turn


def make_peer() -> Callable[[], float]:
    group = dist.new_group(backend="gloo")
    rank = dist.get_rank()
    tensor = torch.randn(1, WIDTH)

    def turn() -> float:
        dist.barrier(group)
        start = time.perf_counter()
        for _ in range(CALLS):
            if rank == 0:
                dist.send(tensor, 1, group)
                dist.recv(tensor, 1, group)
            else:
                dist.recv(tensor, 0, group)
                dist.send(tensor, 0, group)
        return (time.perf_counter() - start) / CALLS

    return turn


def main() -> None:
    smp.init({"partitions": 2, "auto_partition": False, "default_partition": 0})
    seconds: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="smp-bench-") as folder:
        turns = {"ours": make_ours(), "gloo": make_peer()}
        if "rpc" in sys.argv:
            turns["rpc"] = make_rpc(Path(folder))
        for number in range(ROUNDS + 1):
            for name, turn in turns.items():
                took = turn()
                if number > 0:  # the first round warms up
                    seconds[name].append(took)
        if "rpc" in turns:
            rpc.shutdown()
        dist.barrier()
    if smp.rank() == 0:
        print("RESULT " + json.dumps(seconds))


if __name__ == "__main__":
    main()
