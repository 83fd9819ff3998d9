# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes: who is who, what is sent, and what happens when somebody is absent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launching import Outcome, run_alone, run_mpi, run_torchrun
from rank_pool import RankPool

PLACEMENTS = ["cluster", "spread", *map("".join, itertools.permutations("DPT"))]


def layout(pp: int, tp: int, placement: str) -> dict[str, Any]:
    return {
        "partitions": pp,
        "tensor_parallel_degree": tp,
        "placement_strategy": placement,
        "ddp": True,
    }


@pytest.mark.parametrize(
    ("processes", "pp", "tp", "placement"),
    [
        (1, 1, 1, "cluster"),
        (4, 1, 1, "cluster"),
        (4, 2, 1, "spread"),
        (4, 4, 1, "DPT"),
        *[(4, 2, 2, placement) for placement in ("cluster", "spread")],
        (8, 4, 1, "cluster"),
        *[(8, 2, 2, placement) for placement in PLACEMENTS],
    ],
)
def test_ranks_groups_and_objects(
    pool: Callable[[int], RankPool], processes: int, pp: int, tp: int, placement: str
) -> None:
    settings = layout(pp, tp, placement)

    pool(processes).run("ranks_and_objects:check", settings, settings)


def test_stages_may_have_made_different_groups_before_one_they_share(
    pool: Callable[[int], RankPool],
) -> None:
    sums = pool(4).run("ranks_and_objects:sum_after_a_group_of_one_stage", layout(2, 1, "cluster"))

    assert sums == [1, 1, 5, 5]


def check_all_ranks_are_done(outcome: Outcome, processes: int) -> None:
    assert outcome.code == 0, outcome.output
    assert outcome.output.count("checked on one rank") == processes, outcome.output


def test_under_open_mpi_without_a_rendezvous_rank_0_picks_one() -> None:
    outcome = run_mpi(2, "ranks_and_objects.py", json.dumps(layout(2, 1, "cluster")))

    check_all_ranks_are_done(outcome, 2)


def test_under_torchrun_its_agent_is_the_rendezvous() -> None:
    outcome = run_torchrun(2, "ranks_and_objects.py", json.dumps(layout(1, 1, "spread")))

    check_all_ranks_are_done(outcome, 2)


def test_a_bare_process_is_a_job_of_one() -> None:
    check_all_ranks_are_done(run_alone("ranks_and_objects.py", json.dumps(layout(1, 1, "DPT"))), 1)


def test_an_initialised_torch_distributed_decides_the_ranks(tmp_path: Path) -> None:
    outcome = run_mpi(4, "joins_torch.py", str(tmp_path / "store"))

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("joined torch.distributed") == 4


@pytest.mark.parametrize(
    ("call", "waiting", "text"),
    [
        ("barrier", 0, "smp.barrier over WORLD: rank 0 waited 1 s for rank 1 of ranks 0, 1"),
        ("recv_from", 0, "smp.recv_from: rank 0 waited 1 s for rank 1 of ranks 0, 1"),
        ("send", 1, "smp.send: rank 1 waited 1 s for rank 0 of ranks 0, 1"),
        ("allgather", 1, "smp.allgather over PP: rank 1 waited 1 s for rank 0 of ranks 0, 1"),
        (
            "state_dict",
            1,
            "DistributedModel.state_dict(): rank 1 waited 1 s for rank 0 of ranks 0, 1; they "
            "ended, hang, or do not make the matching call (SMP_TIMEOUT_SECONDS sets the time); "
            "call it on all ranks with rdp_rank() == 0",
        ),
    ],
)
def test_who_waits_in_vain_learns_for_whom(
    pool: Callable[[int], RankPool], call: str, waiting: int, text: str
) -> None:
    ranks = pool(2)

    ranks.start("misuse:one_rank_alone", {"partitions": 2}, call)
    outcomes = [ranks.outcome(rank) for rank in range(2)]

    assert f"SMPCommTimeoutError: {text}" in outcomes[waiting].error
    assert outcomes[1 - waiting].error == ""


@pytest.mark.parametrize(
    ("call", "waiting", "before", "seconds", "text"),
    [
        # Rank 0 leaves last: its connections stay until rank 1 has given up.
        (
            "clip_grad_norm_",
            1,
            1,
            1,
            "SMPCommTimeoutError: smp.clip_grad_norm_: rank 1 waited 1 s for rank 0 of ranks 0, 1",
        ),
        (
            "GradScaler",
            1,
            1,
            1,
            "SMPCommTimeoutError: GradScaler.unscale_: rank 1 waited 1 s for rank 0 of ranks 0, 1",
        ),
        (
            "clip_grad_norm_",
            0,
            1,
            60,
            "SMPConnectionError: smp.clip_grad_norm_: rank 0 lost the connection to rank 1: ",
        ),
        (
            "clip_grad_norm_",
            1,
            0,
            1,
            "SMPCommTimeoutError: a first call over ranks 0, 1: rank 1 waited 1 s for rank 0",
        ),
    ],
)
def test_who_reduces_in_vain_learns_with_whom(
    pool: Callable[[int], RankPool], call: str, waiting: int, before: int, seconds: int, text: str
) -> None:
    ranks = pool(2)
    job = "misuse:one_rank_alone_in_a_reduction"

    ranks.start(job, {"partitions": 2}, call, waiting, before, seconds)
    outcomes = [ranks.outcome(rank) for rank in range(2)]

    assert text in outcomes[waiting].error
    assert outcomes[1 - waiting].error == ""


def test_a_rank_that_is_not_there_is_refused(pool: Callable[[int], RankPool]) -> None:
    errors = pool(2).run("misuse:name_a_rank_that_is_not_there", {"partitions": 2}, fails=True)

    assert all("names rank 2 of its PP group, which has ranks 0 to 1" in e for e in errors)


def test_settings_that_do_not_fit_the_world_end_it_at_once(pool: Callable[[int], RankPool]) -> None:
    errors = pool(2).run("misuse:nothing", {"partitions": 4}, fails=True)

    assert all("world size 2 is not divisible by partitions 4" in e for e in errors)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("different-settings", "rank 1 and rank 0 have different settings: microbatches is 3 here"),
        ("failure", "ArithmeticError: the script of rank 0 failed"),
    ],
)
def test_one_rank_that_fails_ends_the_job(case: str, text: str) -> None:
    outcome = run_mpi(2, "misuse.py", case)

    assert outcome.code != 0
    assert text in outcome.output, outcome.output


def test_a_rank_that_calls_sys_exit_ends_the_job_with_its_code() -> None:
    outcome = run_mpi(2, "misuse.py", "exit")

    assert outcome.code == 5, outcome.output
