# SPDX-License-Identifier: Apache-2.0
"""`train --verify`: checkpoints of the tree, and of elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from jobs import job_environment, train_binary
from runners import library, needs_torch

pytestmark = needs_torch


def verify(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [train_binary(), "--verify", *map(str, words)],
        env={**job_environment(), "PYTHONPATH": str(library()), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def saved(folder: Path) -> Path:
    import torch  # noqa: PLC0415  # only where it is there

    checkpoints = folder / "opt_ml" / "checkpoints"
    checkpoints.mkdir(parents=True)
    torch.save({"weight": torch.ones(5000)}, checkpoints / "model.pt")
    return checkpoints


def test_checkpoints_of_the_tree_are_looked_at(folder: Path, saved: Path) -> None:
    done = verify(SAGEMAKER_BASE_DIR=str(saved.parent))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{saved}: files, 1 files, {size(saved)} bytes: whole\n"


def test_a_file_that_is_cut_off_is_named(saved: Path) -> None:
    assert verify("--record", saved).returncode == 0
    os.truncate(saved / "model.pt", 9000)

    done = verify(saved)

    assert done.returncode == 1
    assert "NOT WHOLE\n  model.pt is cut off: it has 9000 bytes, and" in done.stdout


def test_what_is_no_checkpoint_is_an_error(folder: Path) -> None:
    done = verify(folder / "nowhere")
    assert done.returncode == 1
    assert done.stderr == f"Error: there is no checkpoint {folder / 'nowhere'}\n"

    without = verify(folder, PATH="/nowhere")
    assert without.returncode == 1
    assert "name one with SM_LAUNCH_PYTHON" in without.stderr


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
