# SPDX-License-Identifier: Apache-2.0
"""A job that is killed while it saves beside training leaves a whole checkpoint."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from smdistributed.sagemaker.distributed.checkpoint.state_dict_loader import load

SAVER = """
import sys, torch
import smdistributed.sagemaker
from torch.sagemaker.distributed.checkpoint.state_dict_saver import (
    async_save, maybe_finalize_async_calls)
step, steps = int(sys.argv[2]), {}
content = {str(n): torch.zeros(200, 200, dtype=torch.int64) for n in range(20)}
while True:
    step += 1
    for one in content.values():
        one.fill_(step)
    steps[async_save(content, checkpoint_id=sys.argv[1])] = step
    for one in content.values():
        one.fill_(-1)  # what is trained next is none of the save's business
    for index in maybe_finalize_async_calls(blocking=True):
        print(steps[index], flush=True)
"""


def test_the_last_finished_save_is_read_whole_after_a_kill(tmp_path: Path) -> None:
    target, generator, told = tmp_path / "one", random.Random(7), 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SAVER, str(target), str(told)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        told = int(process.stdout.readline())
        time.sleep(generator.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        told = max([told, *map(int, process.stdout.read().split())])

        read = {str(n): torch.zeros(200, 200, dtype=torch.int64) for n in range(20)}
        load(read, checkpoint_id=target)

        (value,) = {int(one) for tensor in read.values() for one in tensor.unique()}
        assert value in {told, told + 1}
        told = value
