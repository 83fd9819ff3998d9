# SPDX-License-Identifier: Apache-2.0
"""Real jobs that one thing holds up: the report's verdict names it."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
from launching import run_mpi

VERDICTS = {
    "": "Nothing holds the job up",
    "slow rank": "Rank 1 on ",
    "data": "of the time passes outside of steps and optimizers",
    "partition": "Partition 0 computes ",
    "bubble": "with 1 microbatch 2 partitions cannot work for 50 % of a step",
    "memory growth": "The memory of rank ",
    "overflows": "of the steps were skipped, for gradients in fp16 overflowed",
}


ROUNDS = (1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 21)))


@pytest.mark.parametrize("turn", ROUNDS)
@pytest.mark.parametrize("fault", VERDICTS)
def test_the_verdict_names_what_holds_the_job_up(tmp_path: Path, fault: str, turn: int) -> None:
    records, page = tmp_path / "records", tmp_path / "report.html"
    outcome = run_mpi(2, "bounded.py", *fault.split(), SMP_RECORDS=str(records))
    assert outcome.code == 0, outcome.output

    train = Path(sysconfig.get_path("scripts")) / "train"
    done = subprocess.run(
        [train, "--report", records, "--output", page],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, (turn, done.stderr)
    verdict = done.stdout.splitlines()[1]
    assert VERDICTS[fault] in verdict
