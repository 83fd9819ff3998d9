# SPDX-License-Identifier: Apache-2.0
"""examples/char_transformer_cpp: sharded, in 16 bits, interrupted."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cpp.commands import HERE
from tests.cpp.jobs import run_job

EXAMPLE = HERE.parents[1] / "examples/char_transformer_cpp"
TEXT = Path("/usr/share/common-licenses/GPL-3")  # in Debian's base-files
SHARDED = {"bf16": True, "ddp": True, "sharded_data_parallel_degree": 2,
           "sdp_param_persistence_threshold": 100, "microbatches": 2}  # fmt: skip
SMALL = {"width": 32, "depth": 2, "length": 32}


@pytest.fixture(scope="module")
def program(build) -> Path:
    return build(EXAMPLE) / "char_transformer"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    shutil.copy(TEXT, folder)
    return folder


def losses(
    job: Path, program: Path, data: Path, settings: dict[str, object], steps: int,
    after: Path | None = None,
) -> dict[int, str]:  # fmt: skip
    """Losses of a job in a new folder, by step; it goes on from the checkpoints of ``after``."""
    code = job.with_name(job.name + "_code")
    code.mkdir()
    shutil.copy(program, code)
    done = run_job(
        job, code, program.name, settings,
        processes=2 if "ddp" in settings else 1, data=data,
        hyperparameters=SMALL | {"steps": steps}, after=after,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {int(step): loss for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", done.stdout)}


def test_a_job_that_was_interrupted_goes_on_as_if_it_were_not(program, data, tmp_path):
    whole = losses(tmp_path / "whole", program, data, SHARDED, 60)
    assert list(whole) == [20, 40, 60]
    assert float(whole[60]) < float(whole[20]) - 0.2

    losses(tmp_path / "first", program, data, SHARDED, 40)
    rest = losses(tmp_path / "rest", program, data, SHARDED, 60, after=tmp_path / "first")

    assert rest == {60: whole[60]}


def test_one_process_goes_on_from_shards(program, data, tmp_path):
    losses(tmp_path / "first", program, data, SHARDED, 20)
    rest = losses(tmp_path / "rest", program, data, {"bf16": True}, 40, after=tmp_path / "first")
    assert list(rest) == [40]
