# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes: who is who, what is sent, and what happens when somebody is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.launching import Outcome, run_alone, run_mpi, run_torchrun


def check_all_ranks_are_done(outcome: Outcome, processes: int) -> None:
    assert outcome.code == 0, outcome.output
    assert outcome.output.count("rank done after") == processes, outcome.output


@pytest.mark.parametrize("processes", [1, 4, 8])
def test_ranks_groups_and_objects_under_open_mpi(processes: int) -> None:
    outcome = run_mpi(processes, "ranks_and_objects.py", str(processes))

    check_all_ranks_are_done(outcome, processes)


def test_ranks_groups_and_objects_under_torchrun() -> None:
    check_all_ranks_are_done(run_torchrun(2, "ranks_and_objects.py", "2"), 2)


def test_a_bare_process_is_a_job_of_one() -> None:
    check_all_ranks_are_done(run_alone("ranks_and_objects.py", "1"), 1)


def test_an_initialised_torch_distributed_decides_the_ranks(tmp_path: Path) -> None:
    outcome = run_mpi(4, "joins_torch.py", str(tmp_path / "store"))

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("joined in") == 4


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("absent-from-barrier", "SMPCommTimeoutError: smp.barrier over WORLD: rank 0 waited 2 s for "
         "rank 1 of [0, 1]"),
        ("nothing-sent", "smp.recv_from: rank 0 waited 2 s for rank 1 of [0, 1]"),
        ("nobody-receives", "smp.send: rank 1 waited 2 s for rank 0 of [0, 1]"),
        ("absent-from-allgather", "smp.allgather over PP: rank 1 waited 2 s for rank 0 of [0, 1]"),
        ("wrong-rank", "names rank 2 of its PP group, which has ranks 0 to 1"),
        ("does-not-divide", "world size 2 is not divisible by partitions 4"),
        ("different-settings", "rank 1 and rank 0 have different settings: microbatches is 3 here "
         "and 2 there"),
        ("failure", "ArithmeticError: the script of rank 0 failed"),
    ],
)  # fmt: skip
def test_mistakes_end_the_job_and_name_who_made_them(case: str, text: str) -> None:
    outcome = run_mpi(2, "misuse.py", case, SMP_TIMEOUT_SECONDS="2" if "-" in case else "600")

    assert outcome.code != 0
    assert text in outcome.output
