# SPDX-License-Identifier: Apache-2.0
"""The engine with one rank on a GPU: backwards of microbatches on one thread, streams, offload."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

JOB = Path(__file__).with_name("engine_job.py")


@pytest.mark.parametrize("offload", ["plain", "offload"])
@pytest.mark.parametrize("stream", ["default", "side"])
def test_a_step_learns_what_pytorch_learns(device: torch.device, offload: str, stream: str) -> None:
    outcome = subprocess.run(
        [sys.executable, str(JOB), device.type, offload, stream],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "gradients agree" in outcome.stdout
