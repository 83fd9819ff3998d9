# SPDX-License-Identifier: Apache-2.0
"""A stop signal: the job is saved at one step of all ranks, and goes on as if nothing had been."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import Outcome, run_mpi

from tests.digits_job import BUILD, BUILT
from tests.free_port import free_port
from tests.mpi.launching import JOBS


def run(folder: Path, settings: dict[str, object], batches: int, rank: int, at: int) -> Outcome:
    words = (json.dumps(settings), str(folder), str(batches), str(rank), str(at))
    return run_mpi(2, "stop_job.py", *words)


def said(outcome: Outcome, pattern: str) -> list[str]:
    return re.findall(pattern, outcome.output)


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        pytest.param(
            {"partitions": 2, "microbatches": 2}, 1, id="pipeline", marks=pytest.mark.long
        ),
        pytest.param({"partitions": 2, "microbatches": 2}, 3, id="accumulated"),
        pytest.param({"ddp": True}, 1, id="replicas", marks=pytest.mark.long),
        pytest.param({"ddp": True, "sharded_data_parallel_degree": 2}, 2, id="sharded"),
    ],
)
def test_a_stopped_job_goes_on_to_the_bit(
    tmp_path: Path, settings: dict[str, object], batches: int
) -> None:
    whole = run(tmp_path / "whole", settings, batches, -1, -1)
    assert whole.code == 0, whole.output
    stopped_rank, at = 1, 3

    stopped = run(tmp_path / "saved", settings, batches, stopped_rank, at)
    resumed = run(tmp_path / "saved", settings, batches, -1, -1)

    assert stopped.code == 143, stopped.output
    assert said(stopped, r"rank (\d) handles the signal") == [str(stopped_rank)]
    assert "the job is saved, and ends with exit code 143" in stopped.output
    assert (tmp_path / "saved" / "newest").read_text() == "stopped_partial"
    # Before the next step where nothing is accumulated, else after the update that was begun.
    updates = at if batches == 1 else at + 1
    assert said(resumed, r"resumed at (\d)") == [str(updates)] * 2, resumed.output
    assert resumed.code == 0, resumed.output
    ends = said(resumed, r"ends with (\w{64})")
    assert ends == said(whole, r"ends with (\w{64})")
    assert len(ends) == 2


def test_a_save_that_fails_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    stopped = run(tmp_path / "file", {"partitions": 2}, 1, 0, 2)

    assert stopped.code == 1, stopped.output
    assert "SIGTERM came, and the job could not be saved: " in stopped.output
    assert str(tmp_path / "file") in stopped.output


def make_tree(tree: Path, script: str, **settings: bool) -> None:
    parameters = json.dumps({"partitions": 2, **settings})
    subprocess.run(
        [BUILD / "bin" / "train", "--make-tree", tree, "--code", JOBS, "--program", script,
         "--processes", "2", "--mp-parameters", parameters],
        check=True, capture_output=True,
    )  # fmt: skip


def train(tree: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BUILD / "bin" / "train"],
        env={**BUILT, "HOME": os.environ["HOME"], "SAGEMAKER_BASE_DIR": str(tree),
             "SM_LAUNCH_PYTHON": sys.executable, "MASTER_PORT": free_port(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def test_train_passes_the_stop_on_and_a_setting_saves(tmp_path: Path) -> None:
    tree, kept = tmp_path / "tree", tmp_path / "kept"
    make_tree(tree, "stopped_by_train.py", checkpoint_on_signal=True)
    config = {"LocalPath": str(kept), "S3Uri": "s3://bucket/kept"}
    (tree / "input/config/checkpointconfig.json").write_text(json.dumps(config))

    first = train(tree)
    assert first.stdout is not None
    while "has stepped" not in (line := first.stdout.readline()):
        assert line, "it has ended"
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate(timeout=240)
    again = train(tree)
    output_again, _ = again.communicate(timeout=240)

    assert first.returncode == 143, output
    assert (kept / "newest").read_text() == "stopped_partial"
    assert again.returncode == 0, output_again
    assert output_again.count("has stepped") == 2, output_again
    assert (tree / "output/success").exists()


@pytest.mark.parametrize(
    "kills",
    [pytest.param(2, marks=pytest.mark.thorough), pytest.param(50, marks=pytest.mark.long)],
)
def test_a_job_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    tmp_path: Path, kills: int
) -> None:
    digests, seconds = [], []
    updates = max(60, 6 * kills)
    for number in (0, kills):
        tree = tmp_path / f"killed_{number}"
        make_tree(tree, "killed_job.py")
        begin = time.monotonic()
        output, _ = train(
            tree,
            SM_LAUNCH_RESTARTS=str(kills),
            KILLS=str(number),
            KILLED_WITHIN="2",
            UPDATES=str(updates),
        ).communicate(timeout=60 * (kills + 2))
        seconds.append(time.monotonic() - begin)
        assert (tree / "output/success").exists(), output
        assert output.count("all ranks are started again") == number, output
        digests += re.findall(r"ends with (\w{64})", output)
        left = [path.name for path in (tree / "checkpoints").iterdir()]
        assert sorted(left) == [f"at_{updates - 5}_partial", f"at_{updates}_partial", "newest"]
    print(f"unbroken {seconds[0]:.0f} s, with {kills} kills {seconds[1]:.0f} s")

    assert digests == [digests[0]] * 2
