# SPDX-License-Identifier: Apache-2.0
"""Suspects from reading the source that only a GPU can clear; for jobs of two ranks see
test_engine.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch._pipeline.splitting import InputSplit

from tests.mpi.launching import run_torchrun

pytestmark = pytest.mark.suspect
BUSY = 50_000_000  #: clock cycles
BAD_LABEL = """
import torch
from smdistributed import _runtime
scores = torch.randn(4, 8, device="cuda")
labels = torch.tensor([0, 7, -100, 8], device="cuda")
loss = _runtime.TensorExchange("", 1, 0).vocabulary_loss(scores, labels, -100)
print("the loss is", loss.sum().item())
"""
#: The first steps make what stays. A hook has gradients averaged, alone as this rank is.
WAITS = """
import sys
import smdistributed.modelparallel.torch as smp
import torch
from tests.gpu.engine_job import layers, train_step
hooked = sys.argv[1] == "ddp"
smp.init({"microbatches": 4, "ddp": hooked})
model = smp.DistributedModel(layers())
def hook(_state, bucket):
    kept = torch.futures.Future()
    kept.set_result(bucket.buffer())
    return kept
if hooked:
    model.register_comm_hook(None, hook)
optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), fused=True))
batch = torch.randn(32, 256, device="cuda")
for step in range(4):
    torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
    optimizer.zero_grad()
    train_step(model, batch)
    optimizer.step()
print("no step has waited")
"""


def test_a_batch_that_leaves_the_gpu_is_complete_when_the_step_begins(gpu: torch.device) -> None:
    def function(batch: Any) -> None: ...

    torch.cuda._sleep(BUSY)
    batch = torch.full((1 << 20,), 3.0, device=gpu)  # made long after this line
    ((split,), _) = InputSplit(function).split((batch,), {}, 1, device=torch.device("cpu"))[0]

    assert bool((split == 3).all())


def test_a_label_beyond_the_vocabulary_gives_no_loss(gpu: torch.device) -> None:
    """In a process of its own: a device that was stopped works for nobody afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", BAD_LABEL],
        env=os.environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert gpu.type == "cuda"
    assert done.returncode != 0, done.stdout
    assert "the loss is" not in done.stdout
    assert "a label is none of 0 to 7" in done.stdout + done.stderr


@pytest.mark.parametrize("case", ["alone", "ddp"])
def test_the_host_does_not_wait_for_a_step(gpu: torch.device, case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS, case],
        env=os.environ | {"SMP_PROGRESS": "off"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert gpu.type == "cuda"
    assert "no step has waited" in done.stdout, done.stdout + done.stderr


def test_ranks_that_take_one_gpu_are_told_what_to_do(gpu: torch.device, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import smdistributed.modelparallel.torch as smp, torch\n"
        "smp.init({'ddp': True})\n"
        "smp.DistributedModel(torch.nn.Linear(2, 2))\n"
    )

    outcome = run_torchrun(2, str(script), SMP_TIMEOUT_SECONDS="20")

    assert outcome.code != 0
    assert "SMPDeviceError: ranks" in outcome.output, outcome.output
    assert '"ddp_dist_backend": "smddp"' in outcome.output
    assert gpu.type == "cuda"
