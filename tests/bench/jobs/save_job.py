# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench save: about 2 GB of state, copied, saved, saved in the background while it
trains on, and loaded.

    save_job.py FOLDER ROUNDS

Prints the seconds of each by name, of every round.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed.checkpoint as dcp
from save_clock import Clock
from torch import nn

WIDTH, LAYERS = 4096, 10
CLOCK = Clock()


@smp.step
def forward_backward(model: Any, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(1)
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        self.model = smp.DistributedModel(nn.Sequential(*layers))
        inner = torch.optim.AdamW(self.model.parameters(), lr=1e-5, foreach=True)
        self.optimizer = smp.DistributedOptimizer(inner)
        self.batch = torch.randn(8, WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        forward_backward(self.model, self.batch)
        self.optimizer.step()

    def state(self) -> list[torch.Tensor]:
        inner = self.optimizer.optimizer.state.values()
        return [*self.model.parameters(), *(value for one in inner for value in one.values())]


def write_plainly(folder: Path, size: int) -> None:
    """dd with fsync."""
    mebibytes = size >> 20
    command = ["dd", "if=/dev/zero", f"of={folder / 'plain'}", "bs=1M", f"count={mebibytes}",
               "conv=fsync", "status=none"]  # fmt: skip
    with CLOCK.timed("dd"):
        subprocess.run(command, check=True)
    (folder / "plain").unlink()


def read_plainly(checkpoint: Path) -> None:
    """dd, past the system's cache, where neither save has left anything."""
    with CLOCK.timed("dd reading"):
        for file in checkpoint.glob("*.pt"):
            command = ["dd", f"if={file}", "of=/dev/null", "bs=8M", "iflag=direct", "status=none"]
            subprocess.run(command, check=True)


def run(job: Job, number: int, size: int) -> None:
    write_plainly(job.folder, size)
    CLOCK.copy_and_steps(job.state, job.step)

    ours = job.folder / "ours"
    with CLOCK.timed("stall"):
        smp.save_checkpoint(str(ours), f"later{number}", blocking=False)
    CLOCK.steps_beside("step beside ours", job.step, (ours / f"later{number}_partial").is_dir)
    smp.wait_for_saves()
    with CLOCK.timed("save"):
        smp.save_checkpoint(str(ours), f"now{number}")
    read_plainly(ours / f"now{number}_partial")
    with CLOCK.timed("load"):
        smp.resume_from_checkpoint(str(ours))

    theirs = job.folder / "theirs"
    content = {"model": job.model.state_dict(), "optimizer": job.optimizer.optimizer.state_dict()}
    with CLOCK.timed("DCP stall"):
        future = dcp.async_save(content, checkpoint_id=theirs)
    CLOCK.steps_beside("step beside DCP", job.step, future.done)
    future.result()
    for folder in (ours, theirs):
        shutil.rmtree(folder)


def main() -> None:
    smp.init({"ddp": True})
    job = Job(Path(sys.argv[1]))
    job.step()
    size = sum(tensor.nbytes for tensor in job.state())
    for number in range(int(sys.argv[2])):
        run(job, number, size)
    CLOCK.print_result(size)


main()
