# SPDX-License-Identifier: Apache-2.0
"""Kills a rank of a training job at a random moment, again and again: kill_ranks.py TIMES SEED.

Ranks are forked from this process, two partitions times two replicas, four partitions, four
replicas and ranks that add up norms by turns, and no launcher watches them: when one is killed, the
others have to end by themselves, in time, and each with an error that names the rank it lost.
Prints "killed N times".
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
from typing import NamedTuple

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn

RANKS, WIDTH = 4, 8
SETTINGS = {
    "microbatches": 4,
    "ddp": True,
    "auto_partition": False,
    "default_partition": 0,
}
#: Number of partitions, and whether ranks do nothing but add up the norm of their gradients.
JOBS = ((2, False), (4, False), (1, False), (4, True))
END_SECONDS = 30
START_SECONDS = 120


class Place(NamedTuple):
    """Ranks to which one talks: those of its pipeline, and of its data-parallel group."""

    pipeline: list[int]
    data: list[int]


@smp.step
def train_step(model, batch):
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


def train(rank: int, partitions: int, only_norms: bool, folder: str, tell: Connection) -> None:
    # Through a file, not a port: no other process can have taken it.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    smp.init({**SETTINGS, "partitions": partitions})
    tell.send(Place(smp.get_pp_group(), smp.get_dp_group()))
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    for index, layer in enumerate(layers):
        smp.set_partition(layer, index % partitions)
    model = smp.DistributedModel(layers)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3))

    def step() -> None:
        optimizer.zero_grad()
        train_step(model, torch.randn(8, WIDTH))
        optimizer.step()

    step()
    while True:
        if only_norms:
            smp.clip_grad_norm_(model.parameters(), 1.0)
        else:
            step()
        tell.send("step")


def rank_process(
    rank: int, partitions: int, only_norms: bool, folder: str, tell: Connection
) -> None:
    """Never returns; its last word is why it ended."""
    text = "its function returned"
    try:
        train(rank, partitions, only_norms, folder, tell)
    except BaseException:
        text = traceback.format_exc()
    try:
        tell.send(text)
    finally:
        os._exit(1)  # as a script that fails: no goodbye is owed


def kill_one(generator: random.Random, partitions: int, only_norms: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranks: dict[int, int] = {}
        ears: list[Connection] = []
        for rank in range(RANKS):
            hear, tell = Pipe(duplex=False)
            child = os.fork()
            if child == 0:
                rank_process(rank, partitions, only_norms, folder, tell)
            tell.close()
            ears.append(hear)
            ranks[rank] = child
        places = [next_word(hear) for hear in ears]
        assert all(isinstance(place, Place) for place in places), places
        for hear in ears:
            first = next_word(hear)
            assert first == "step", first
        victim = generator.randrange(RANKS)
        # From here on it is anywhere in a step; one takes some milliseconds.
        time.sleep(generator.uniform(0, 0.3))
        os.kill(ranks[victim], signal.SIGKILL)
        killed_at = time.monotonic()
        last_words = [listen_to_the_end(hear, killed_at + END_SECONDS) for hear in ears]
        for child in ranks.values():
            os.waitpid(child, 0)
        for rank, text in enumerate(last_words):
            if rank != victim:
                expected = names_of_the_lost(rank, victim, places)
                if only_norms:
                    expected = {f"lost the connection to rank {victim}:"}
                assert blamed(text) in expected, f"rank {rank} of {victim}, {expected}: {text}"


def next_word(hear: Connection) -> object:
    assert hear.poll(START_SECONDS), "a rank makes no step"
    return hear.recv()


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


def blamed(text: str) -> str:
    """Rank to blame for an error of the library; nobody in one of another kind, nor in one that has
    two answers."""
    if "SMPConnectionError: " not in text and "SMPStepError: " not in text:
        return ""
    pattern = r"rank \d+ of the pipeline group is lost|lost the connection to rank \d+:"
    found = set(re.findall(pattern, text))
    return found.pop() if len(found) == 1 else ""


def names_of_the_lost(rank: int, victim: int, places: list[Place]) -> set[str]:
    """Names by which `rank` may say who was lost. One that does not talk to the victim loses a rank
    that does, which ends for that reason."""

    def names(lost: int) -> set[str]:
        mine, found = places[rank], set()
        if lost in mine.pipeline:
            found.add(f"rank {mine.pipeline.index(lost)} of the pipeline group is lost")
        if lost in mine.data:
            found.add(f"lost the connection to rank {lost}:")
        return found

    others = [other for other in range(RANKS) if other not in (rank, victim)]
    return names(victim) or set().union(*map(names, others))


def main() -> None:
    times, generator = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    # The first optimizer of a process imports for a second: here, and not in each forked rank.
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1)
    for number in range(times):
        kill_one(generator, *JOBS[number % len(JOBS)])
    print(f"killed {times} times")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
