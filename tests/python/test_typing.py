# SPDX-License-Identifier: Apache-2.0
"""Types that a checker finds in scripts: the parameters and results of steps, and the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]
HEAD = """
from typing import Any

import torch
import smdistributed.modelparallel.torch as smp
from typing_extensions import assert_type

@smp.step
def loss_of(model: smp.DistributedModel, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return x * scale

@smp.step(non_split_inputs=["x"], detach_outputs=False)
def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x

@smp.step
def named(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"x": x}

@smp.step
def number(x: torch.Tensor) -> int:
    return 1

@smp.step
def untyped(model, x):  # type: ignore[no-untyped-def]
    return x

def script(model: smp.DistributedModel, x: torch.Tensor) -> None:
"""
GOOD = """
    assert_type(loss_of(model, x), smp.StepOutput)
    assert_type(loss_of(model, x=x, scale=2.0), smp.StepOutput)
    assert_type(pair(x), tuple[smp.StepOutput, smp.StepOutput])
    assert_type(named(x), dict[str, smp.StepOutput])
    assert_type(number(x), Any)
    assert_type(untyped(model, x), Any)
    assert_type(smp.state.cfg.microbatches, int)
    assert_type(smp.state.cfg.ddp_port, int | None)
"""
BAD = """
    loss_of(model)
    loss_of(model, x, 1.0, x)
    loss_of(model, "x")
    pair(y=x)
    untyped(model)
    smp.state.cfg.microbatch
"""


def complaints(script: str, folder: Path) -> list[str]:
    """Line by line what mypy says, with the line's number in ``script`` from 1."""
    file = folder / "script.py"
    file.write_text(HEAD.strip() + "\n" + script.strip("\n") + "\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run(
        [*command, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    first = len(HEAD.strip().splitlines())
    return [
        f"{int(line.split(':')[1]) - first}: {line.split('error: ')[1]}"
        for line in done.stdout.splitlines()
        if line.startswith(str(file)) and "error: " in line
    ]


def test_steps_keep_parameters_and_give_step_outputs(tmp_path: Path) -> None:
    assert complaints(GOOD, tmp_path) == []


def test_wrong_arguments_and_settings_are_seen(tmp_path: Path) -> None:
    said = complaints(BAD, tmp_path)

    assert [line.split(":")[0] for line in said] == ["1", "2", "3", "4", "5", "6"]
    assert '"ParallelConfig" has no attribute "microbatch"; maybe "microbatches"?' in said[-1]
