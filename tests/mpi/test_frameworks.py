# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Lightning, from PyPI, on smddp: DistributedDataParallel and FSDP2 learn what one
process learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jobs import frameworks_job
from launching import run_torchrun
from package_environments import environment_with

LIGHTNING = "lightning==2.6.6"


@pytest.mark.parametrize(
    "how",
    [
        "accelerate_ddp",
        "accelerate_fsdp2",
        pytest.param("lightning_ddp", marks=pytest.mark.long),
        pytest.param("lightning_fsdp2", marks=pytest.mark.long),
    ],
)
def test_a_framework_learns_on_smddp_what_one_process_learns(tmp_path: Path, how: str) -> None:
    python = environment_with(LIGHTNING) if how.startswith("lightning") else None

    outcome = run_torchrun(2, "frameworks_job.py", how, str(tmp_path), python=python)

    assert outcome.code == 0, outcome.output
    seen = torch.load(tmp_path / f"{how}.pt", weights_only=True)
    assert seen["backend"] == "smddp"
    for name, value in frameworks_job.alone().items():
        torch.testing.assert_close(seen["state"][name], value, rtol=0, atol=1e-10)
