# SPDX-License-Identifier: Apache-2.0
"""Saves checkpoints until it is killed, again and again: kill_while_saving.py FOLDER TIMES SEED
[background].

Each round forks a process that resumes, checks that weights and user content are of one step, and
saves further steps, telling each that is complete. It is killed at a random moment; the next round
must find the last complete step or the one after it. Saves in the background go on while weights
change; a step is known to be complete when the next save has begun. Prints "killed N times".
"""

import os
import random
import signal
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch


def fill(model: smp.DistributedModel, step: int) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(step)


def save_until_killed(folder: str, told: int, tell: Connection, behind: int) -> None:
    """``behind``: saves that may be under way when the next one begins."""
    smp.init()
    model = smp.DistributedModel(torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))))
    step = told
    if told:
        # Even steps are whole, odd ones in parts; both under one tag, so that each is replaced.
        found = []
        for partial in (True, False):
            if Path(folder, "same_partial" if partial else "same").exists():
                content = smp.resume_from_checkpoint(
                    folder, tag="same", partial=partial, load_optimizer=False
                )
                weights = {parameter.unique().item() for parameter in model.parameters()}
                assert weights == {content["step"]}, f"{partial}: {weights} and {content}"
                found.append(content["step"])
        latest = told + 1 + behind
        assert told <= max(found) <= latest, f"found {found}, but {told} was complete"
        step = max(found)
        newest = Path(folder, "newest").read_text()
        assert newest in ("same", "same_partial"), newest
    while True:
        step += 1
        fill(model, step)
        smp.save_checkpoint(
            *(folder, "same"), partial=step % 2 == 1, user_content={"step": step},
            blocking=behind == 0,
        )  # fmt: skip
        tell.send(step - behind)


def main() -> None:
    folder, times = sys.argv[1], int(sys.argv[2])
    generator = random.Random(int(sys.argv[3]))
    behind = int("background" in sys.argv)
    told = 0
    for _ in range(times):
        hear, tell = Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            try:
                save_until_killed(folder, told, tell, behind)
            except BaseException as error:
                print(f"after step {told}: {error!r}", flush=True)
            os._exit(1)
        tell.close()
        assert hear.poll(30), "the child saves nothing"
        # From here on it is somewhere in a save; one takes a few to some tens of milliseconds.
        time.sleep(generator.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the child failed before it was killed"
        try:
            while True:
                told = max(told, hear.recv())
        except EOFError:
            pass
    print(f"killed {times} times, {told} steps complete")


if __name__ == "__main__":
    main()
