# SPDX-License-Identifier: Apache-2.0
"""Kills a rank of a training job at a random moment, again and again: kill_ranks.py TIMES SEED.

Ranks are forked from this process, two partitions times two replicas, and no launcher watches them:
when one is killed, the others have to end by themselves, in time, with an error that says who was
lost. Prints "killed N times".
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn

RANKS, WIDTH = 4, 8
SETTINGS = {
    "partitions": 2,
    "microbatches": 4,
    "ddp": True,
    "auto_partition": False,
    "default_partition": 0,
}
END_SECONDS = 30
START_SECONDS = 120


@smp.step
def train_step(model, batch):
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


def train(rank: int, folder: str, tell: Connection) -> None:
    # Through a file, not a port: no other process can have taken it.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    smp.init(SETTINGS)
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    for index, layer in enumerate(layers):
        smp.set_partition(layer, index % 2)
    model = smp.DistributedModel(layers)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3))
    while True:
        optimizer.zero_grad()
        train_step(model, torch.randn(8, WIDTH))
        optimizer.step()
        tell.send("step")


def rank_process(rank: int, folder: str, tell: Connection) -> None:
    """Never returns; its last word is why it ended."""
    text = "its function returned"
    try:
        train(rank, folder, tell)
    except BaseException:
        text = traceback.format_exc()
    try:
        tell.send(text)
    finally:
        os._exit(1)  # as a script that fails: no goodbye is owed


def kill_one(generator: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks: dict[int, int] = {}
        ears: list[Connection] = []
        for rank in range(RANKS):
            hear, tell = Pipe(duplex=False)
            child = os.fork()
            if child == 0:
                rank_process(rank, folder, tell)
            tell.close()
            ears.append(hear)
            ranks[rank] = child
        for hear in ears:
            assert hear.poll(START_SECONDS), "a rank makes no step"
            first = hear.recv()
            assert first == "step", first
        victim = generator.randrange(RANKS)
        # From here on it is anywhere in a step; one takes some milliseconds.
        time.sleep(generator.uniform(0, 0.05))
        os.kill(ranks[victim], signal.SIGKILL)
        killed_at = time.monotonic()
        last_words = [listen_to_the_end(hear, killed_at + END_SECONDS) for hear in ears]
        for child in ranks.values():
            os.waitpid(child, 0)
        for rank, text in enumerate(last_words):
            assert rank == victim or names_the_loss(text), f"rank {rank} of {victim}: {text}"


def listen_to_the_end(hear: Connection, deadline: float) -> str:
    """The last thing that the process at the other end said before it ended."""
    last = ""
    while True:
        left = deadline - time.monotonic()
        assert left > 0 and wait([hear], left), f"a rank goes on {END_SECONDS} s after the kill"
        try:
            last = hear.recv()
        except (EOFError, OSError):  # OSError: in the middle of a message
            return last


def names_the_loss(text: str) -> bool:
    """Whether an error of the library says which rank, or ranks of which group, are to blame."""
    known = "SMPConnectionError: " in text or "SMPStepError: " in text
    blamed = re.search(r"rank \d of the pipeline group|over ranks [\d, ]+ of the job", text)
    return known and blamed is not None


def main() -> None:
    times, generator = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    # The first optimizer of a process imports for a second: here, and not in each forked rank.
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1)
    for _ in range(times):
        kill_one(generator)
    print(f"killed {times} times")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
