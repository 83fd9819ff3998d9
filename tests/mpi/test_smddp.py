# SPDX-License-Identifier: Apache-2.0
"""The backend smddp: what it computes, what trains on it, and what it says when a rank fails."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import pytest

from tests.mpi.launching import run_alone, run_mpi
from tests.mpi.test_digits import variables

JOB = "smddp_jobs.py"
LONG = os.environ.get("SMP_LONG_TESTS") == "1"
AS_CUDA = str(Path(__file__).parent / "published" / "run_as_cuda.py")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_ddp" / "train.py"


@pytest.mark.parametrize("size", [1, 3, 4] if LONG else [1, 3])  # two hosts have four ranks
def test_collectives_of_all_types_and_shapes_hold(size: int) -> None:
    outcome = run_mpi(size, JOB, "collectives")

    assert outcome.code == 0, outcome.output
    checks = ("reductions", "movements", "layouts", "same_bits", "asynchronous")
    for check in (*checks, "pairs", "unasked", "splits", "forks", "callbacks"):
        assert outcome.output.count(f"{check} hold") == size


def test_ddp_and_fsdp2_train_on_it_as_on_gloo_with_forked_loaders() -> None:
    outcome = run_mpi(4, JOB, "training")

    assert outcome.code == 0, outcome.output
    # Lines of several ranks may stand on one.
    for what in ("DDP", "FSDP2"):
        losses = re.findall(rf"{what} (\d+\.\d{{6}})", outcome.output)
        assert len(losses) == 4
        assert len(set(losses)) == 1


@functools.cache
def all_reports() -> str:
    outcome = run_alone("smddp_kill_jobs.py", "faults")
    assert outcome.code == 0, outcome.output
    return outcome.output


def reports(fault: str) -> dict[int, tuple[float, str]]:
    found = re.findall(rf"^{fault}: rank (\d) after (\S+) (.*)$", all_reports(), re.MULTILINE)
    return {int(rank): (float(took), text) for rank, took, text in found}


def test_a_killed_rank_is_named_by_all_others_at_once() -> None:
    seen = reports("killed")

    assert sorted(seen) == [0, 1, 3]
    for took, text in seen.values():
        assert "the process of rank 2" in text
        assert took < 30  # limit: 60


def test_a_rank_that_does_not_come_is_named_when_the_time_is_up() -> None:
    seen = reports("late")

    assert {0, 1, 3} <= set(seen)
    for rank in (0, 1, 3):
        assert "for rank(s) 2, which did not take part" in seen[rank][1]


def test_two_jobs_on_one_host_do_not_see_each_other_nor_each_others_end() -> None:
    seen = reports("neighbours")

    assert sorted(seen) == [0, 2, 3]  # with the right sums
    assert "the process of rank 1" in seen[0][1]
    assert seen[2][1] == seen[3][1] == "no error"


def test_sizes_that_differ_are_an_error_on_every_rank() -> None:
    seen = reports("mismatch")

    assert sorted(seen) == [0, 1, 2, 3]
    for _, text in seen.values():
        assert "rank(s) 3 called all_reduce #1 of float32 [1000003], sum" in text


def test_the_documented_script_learns_digits_on_four_ranks(tmp_path: Path) -> None:
    outcome = run_mpi(4, str(EXAMPLE), CUDA_VISIBLE_DEVICES="", **variables(tmp_path))

    assert outcome.code == 0, outcome.output
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["accuracy"] >= 0.95
    assert result["ranks"] == 4


def test_the_documented_script_pins_each_rank_to_a_gpu_and_trains_there(tmp_path: Path) -> None:
    outcome = run_mpi(2, AS_CUDA, str(EXAMPLE), "--epochs", "1", **variables(tmp_path))

    assert outcome.code == 0, outcome.output
    for rank in range(2):
        assert f"pinned to cuda:{rank}" in outcome.output
    assert outcome.output.count("moved: Net Tensor") == 2


def test_a_script_of_version_1_3_runs_and_is_told_the_new_names() -> None:
    outcome = run_mpi(2, "old_names_job.py")

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("of 2: done") == 2
    # Not line by line: mpirun may put the lines of two ranks into one.
    assert outcome.output.count("use torch.distributed with backend='smddp'") == 2
    assert outcome.output.count("use torch.nn.parallel.DistributedDataParallel with") == 2


def test_a_pending_pair_goes_on_while_its_rank_waits_in_the_store() -> None:
    outcome = run_mpi(2, "pending_pair_job.py")

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("the pair and the group are done") == 2


def test_a_group_tells_its_way_at_debug_level() -> None:
    outcome = run_mpi(2, "old_names_job.py", SM_LOG_LEVEL="10")

    assert outcome.code == 0, outcome.output
    assert "smddp: 2 ranks on 1 host(s): shared memory inside a host; calls of" in outcome.output


def test_a_script_of_version_1_3_sees_that_no_launcher_started_it() -> None:
    outcome = run_alone("old_names_job.py")

    assert outcome.code == 0, outcome.output
    assert "no job: training alone" in outcome.output


def test_torch_debug_mode_asked_for_by_its_variable_trains_the_same() -> None:
    outcome = run_mpi(2, "old_names_job.py", TORCH_DISTRIBUTED_DEBUG="DETAIL")

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("of 2: done") == 2


@pytest.mark.skipif(not LONG, reason="15 GB of memory and minutes: SMP_LONG_TESTS=1")
def test_more_bytes_in_a_call_than_31_bits_count() -> None:
    outcome = run_mpi(2, "large_jobs.py")

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("large calls hold") == 2


def test_the_bench_gives_a_time_of_each_backend_for_each_size() -> None:
    words = "all_reduce --begin 8 --end 1K --factor 16 --rounds 1 --json"
    outcome = run_mpi(2, "bench_jobs.py", *words.split())

    assert outcome.code == 0, outcome.output
    rows = [json.loads(line) for line in outcome.output.splitlines() if line.startswith("{")]
    assert [row["bytes"] for row in rows] == [8, 128]
    for row in rows:
        assert sorted(row["seconds"]) == ["gloo", "smddp"]
        assert min(row["seconds"].values()) > 0
