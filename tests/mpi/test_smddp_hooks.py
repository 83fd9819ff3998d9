# SPDX-License-Identifier: Apache-2.0
"""Futures, communication hooks, rare arguments and signal handlers over smddp."""

from __future__ import annotations

import pytest

from tests.mpi.launching import run_mpi

CHECKS = ("signals", "futures", "ordered_callbacks", "hooks", "sparse", "unequal", "refusals")
OF_ONE_RANK = ("handlers", "threadless")  # checks that the number of ranks does not change


@pytest.mark.parametrize(("size", "checks"), [(2, CHECKS + OF_ONE_RANK), (4, CHECKS)])
def test_futures_hooks_and_rare_arguments_hold(size: int, checks: tuple[str, ...]) -> None:
    outcome = run_mpi(size, "smddp_hook_jobs.py", *checks)

    assert outcome.code == 0, outcome.output
    for check in checks:
        assert outcome.output.count(f"{check} hold") == size
