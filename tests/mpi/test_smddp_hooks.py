# SPDX-License-Identifier: Apache-2.0
"""Futures, communication hooks, rare arguments and signal handlers over smddp."""

from __future__ import annotations

import pytest

from tests.mpi.launching import run_mpi

CHECKS = (
    *("signals", "futures", "ordered_callbacks", "hooks", "sparse", "unequal", "refusals"),
    *("handlers", "threadless"),
)


@pytest.mark.parametrize("size", [2, 4])
def test_futures_hooks_and_rare_arguments_hold(size: int) -> None:
    outcome = run_mpi(size, "smddp_hook_jobs.py")

    assert outcome.code == 0, outcome.output
    for check in CHECKS:
        assert outcome.output.count(f"{check} hold") == size
