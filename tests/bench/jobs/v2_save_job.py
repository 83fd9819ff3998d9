# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench v2: about 2 GB of state of a script of SMP v2, copied, and saved while it
trains on.

    v2_save_job.py FOLDER ROUNDS

Prints the seconds of each by name, of every round.
"""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from save_clock import Clock
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from torch.sagemaker.distributed.checkpoint.state_dict_saver import async_save
from torch.sagemaker.distributed.checkpoint.state_dict_utils import (
    SMStateDictType,
    sm_state_dict_type,
)

WIDTH, LAYERS = 4096, 10
CLOCK = Clock()


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder, self.queue = folder, AsyncCallsQueue()
        torch.manual_seed(1)
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        self.model = FSDP(
            nn.Sequential(*layers),
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            use_orig_params=True,
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, foreach=True)
        self.batch = torch.randn(8, WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()

    def state(self) -> list[torch.Tensor]:
        kept = self.optimizer.state.values()
        return [*self.model.parameters(), *(value for one in kept for value in one.values())]

    def content(self) -> dict[str, Any]:
        with sm_state_dict_type(self.model, SMStateDictType.SM_LOCAL_STATE_DICT):
            return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def run(job: Job, number: int) -> None:
    CLOCK.copy_and_steps(job.state, job.step)

    target = job.folder / str(number)
    begin = time.perf_counter()
    async_save(job.content(), checkpoint_id=target, queue=job.queue)
    stall, finishing = time.perf_counter() - begin, 0.0

    def is_finished() -> bool:
        """As scripts ask after each step; the call that makes the checkpoint is of the stall."""
        nonlocal finishing
        asked = time.perf_counter()
        if job.queue.maybe_finalize_async_calls(blocking=False):
            finishing = time.perf_counter() - asked
        return job.queue.get_num_unfinalized_calls() == 0

    CLOCK.steps_beside("step beside", job.step, is_finished)
    CLOCK.add("stall", stall + finishing)
    CLOCK.add("of which at the end", finishing)
    assert (target / ".metadata").is_file()
    shutil.rmtree(target)


def main() -> None:
    warnings.simplefilter("ignore")  # torch's, of FSDP1 as a whole
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
    tsm.init({"hybrid_shard_degree": 1})
    job = Job(folder)
    job.step()
    size = sum(tensor.nbytes for tensor in job.state())
    for number in range(int(sys.argv[2])):
        run(job, number)
    CLOCK.print_result(size)
    dist.destroy_process_group()


main()
