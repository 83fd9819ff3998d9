# SPDX-License-Identifier: Apache-2.0
"""The engine on a GPU. With one rank: backwards of microbatches on one thread, streams, offload.
With two: calls that block in the middle of a backward."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.mpi.launching import run_torchrun

JOB = Path(__file__).with_name("engine_job.py")


def only(device: torch.device) -> dict[str, str]:
    """Variables for a job on it: the library takes a GPU where it sees one."""
    return {} if device.type == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("offload", ["plain", "offload"])
@pytest.mark.parametrize("stream", ["default", "side"])
def test_a_step_learns_what_pytorch_learns(device: torch.device, offload: str, stream: str) -> None:
    outcome = subprocess.run(
        [sys.executable, str(JOB), device.type, offload, stream],
        env=os.environ | only(device),
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "gradients agree" in outcome.stdout


@pytest.mark.parametrize("schedule", ["simple", "interleaved"])
def test_two_ranks_that_share_a_device_learn_what_pytorch_learns(
    device: torch.device, schedule: str
) -> None:
    agree(device, schedule, "plain")


@pytest.mark.suspect
def test_ranks_whose_first_module_or_gradients_are_elsewhere(device: torch.device) -> None:
    """The batch goes where this rank computes, and a rank that has no gradient clips with the
    others, by their backend."""
    agree(device, "interleaved", "clip")


@pytest.mark.suspect
@pytest.mark.parametrize("case", ["elsewhere", "side"])
def test_ranks_that_share_a_gpu(gpu: torch.device, case: str) -> None:
    agree(gpu, "interleaved", case)


def agree(device: torch.device, schedule: str, case: str) -> None:
    outcome = run_torchrun(
        2, "../../gpu/pipeline_job.py", device.type, schedule, case, **only(device)
    )

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("gradients agree") == 2, outcome.output
