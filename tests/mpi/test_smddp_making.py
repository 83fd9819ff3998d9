# SPDX-License-Identifier: Apache-2.0
"""Groups of smddp made over the keys of earlier ones, and errors where one cannot be made. Orders
in which ranks come: tests/unit/transport/meeting_test.cc."""

from __future__ import annotations

import re

import pytest
from launching import run_torchrun

DDP = {"ddp": True}


def test_ranks_that_torchrun_starts_again_make_their_groups_anew():
    outcome = run_torchrun(3, "smddp_restart_job.py", PET_MAX_RESTARTS="1")

    assert outcome.code == 0, outcome.output
    told = re.findall(r"rank (\d) was told after (\S+) s: (.*)", outcome.output)
    assert sorted(rank for rank, _, _ in told) == ["0", "1"], outcome.output
    for _, seconds, text in told:
        assert "making a group: the process of rank 2 " in text
        assert float(seconds) < 15  # limit: 60
    for rank in range(3):
        assert f"rank {rank} is through" in outcome.output, outcome.output


def test_a_group_is_made_again_over_one_store_whoever_comes_last(pool):
    pool(4).run("smddp_making_jobs:made_again", DDP)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("a variable", "ValueError", 'SMDDP_SLOT_BYTES is "0"'),
        ("a timeout", "ValueError", "the timeout of a group is 0 ms, which lets nobody come"),
        ("open files", "DistBackendError", "open files; raise it (ulimit -n)"),
    ],
)
def test_a_rank_that_cannot_make_a_group_says_why_on_all(pool, name, kind, text):
    for rank, found in enumerate(declined(pool)):
        assert text in found[name]
        assert found[name].startswith(kind if rank == 2 else "DistBackendError")
        if rank != 2:
            assert "smddp: rank 2 cannot make the group: " in found[name]
        assert float(found["seconds"]) < 30  # limit: 60 each


_found: list[dict[str, str]] = []


def declined(pool) -> list[dict[str, str]]:
    """All of them in one run."""
    if not _found:
        _found.extend(pool(4).run("smddp_making_jobs:declined", DDP))
    return _found


def test_long_timeouts_are_for_ever_and_others_are_refused(pool):
    pool(4).run("smddp_making_jobs:timeouts", DDP)
