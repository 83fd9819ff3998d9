# SPDX-License-Identifier: Apache-2.0
"""Kills all ranks of a job that saves checkpoints of several files, again and again:
kill_saves.py TIMES SEED LAYOUT. LAYOUT is ``sharded``, a file for each shard, or ``pipeline``, some
for each partition.

Each round forks ranks that resume, check that weights, optimizer state and user content are of one
step, and go on, with a checkpoint after each step. They are killed at a random moment, one a little
before the other; the next round must find the last complete step or the one after it. Prints
"killed N times".
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch import nn

RANKS, WIDTH, LAYERS = 2, 64, 6
LAYOUTS = {
    "sharded": {
        "ddp": True,
        "sharded_data_parallel_degree": RANKS,
        "sdp_gradient_clipping": 0,
    },
    "pipeline": {"partitions": RANKS},
}
#: Thresholds of rounds, by turns: no parameter is persistent, biases are, and, by default, all are.
THRESHOLDS = (0, WIDTH + 1, 10**6)
START_SECONDS = 120


class CountSteps(torch.optim.Optimizer):
    """Every weight, and every element of the state, is the number of steps."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:  # a parameter of another partition
                    continue
                held = self.state[parameter]
                held.setdefault("count", torch.zeros_like(parameter)).add_(1)
                parameter.add_(1)


def counts_of(counting, optimizer):
    """The state of each parameter, without the padding between those of a shard."""
    if optimizer._masters is None:
        yield from (held["count"] for held in counting.state.values())
        return
    for run in optimizer._masters.runs:
        count = counting.state[run.parameter]["count"]
        yield from (run.slice_of(piece, count) for piece in run.pieces)


@smp.step
def train_step(model, batch):
    model.backward(model(batch).sum())


def train(
    layout: str, rank: int, folder: Path, round_number: int, told: int, tell: Connection
) -> None:
    # Through a file, not a port: no other process can have taken it.
    store = f"file://{folder}/store-{round_number}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    settings = dict(LAYOUTS[layout])
    if layout == "sharded":
        settings["sdp_param_persistence_threshold"] = THRESHOLDS[round_number % len(THRESHOLDS)]
    smp.init(settings)
    module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    model = smp.DistributedModel(module)
    counting = CountSteps(model.parameters())
    optimizer = smp.DistributedOptimizer(counting)
    step = told
    if told:
        step = smp.resume_from_checkpoint(str(folder / "saved"))["step"]
        assert told <= step <= told + 1, f"found step {step}, but {told} was complete"
    model.partition(None)  # as the checkpoint says, without a step that changes what it holds
    if told:
        values = model.state_dict()
        assert len(values) == 2 * LAYERS, values.keys()
        for name, value in values.items():
            assert value.unique().tolist() == [step], (name, value.unique(), step)
        assert counting.state
        for counts in counts_of(counting, optimizer):
            assert counts.unique().tolist() == [step], (counts.unique(), step)
    while True:
        step += 1
        optimizer.zero_grad()
        train_step(model, torch.ones(1, WIDTH))
        optimizer.step()
        smp.save_checkpoint(str(folder / "saved"), "same", user_content={"step": step})
        tell.send(step)


def rank_process(
    layout: str, rank: int, folder: Path, number: int, told: int, tell: Connection
) -> None:
    """Never returns; sends why it ended, if not by a kill."""
    try:
        train(layout, rank, folder, number, told, tell)
    except BaseException:
        tell.send(traceback.format_exc())
    os._exit(1)


def kill_all(generator: random.Random, layout: str, folder: Path, number: int, told: int) -> int:
    """The last step that was told complete."""
    ears, children = [], []
    for rank in range(RANKS):
        hear, tell = Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            rank_process(layout, rank, folder, number, told, tell)
        tell.close()
        ears.append(hear)
        children.append(child)
    for hear in ears:
        assert hear.poll(START_SECONDS), "a rank saves nothing"
    # From here on they are somewhere in a save; one takes some tens of milliseconds.
    time.sleep(generator.uniform(0, 0.1))
    generator.shuffle(children)
    os.kill(children[0], signal.SIGKILL)
    time.sleep(generator.uniform(0, 0.005))
    os.kill(children[1], signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    said = [words for hear in ears for words in all_words(hear)]
    # The second may notice that the first is gone before it is killed itself.
    failures = [words for words in said if isinstance(words, str)]
    assert all("SMPConnectionError" in words or "SMPCheckpointError" in words
               for words in failures), failures  # fmt: skip
    steps = [words for words in said if isinstance(words, int)]
    assert steps, failures
    return max(steps)


def all_words(hear: Connection) -> list[int | str]:
    words: list[int | str] = []
    try:
        while True:
            words.append(hear.recv())
    except (EOFError, OSError):  # OSError: in the middle of a message
        return words


def main() -> None:
    times, generator, layout = int(sys.argv[1]), random.Random(int(sys.argv[2])), sys.argv[3]
    # The first optimizer of a process imports for a second: here, and not in each forked rank.
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1)
    told = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(times):
            told = kill_all(generator, layout, Path(folder), number, told)
    print(f"killed {times} times, {told} steps complete")


if __name__ == "__main__":
    main()
