# SPDX-License-Identifier: Apache-2.0
"""The backend smddp between hosts, which are network namespaces."""

from __future__ import annotations

import sys

import pytest

from tests.host_network import lacks
from tests.mpi.net_hosts import JOBS, NetHosts

LACKS = lacks()


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
@pytest.mark.long
def test_two_hosts_compute_and_train_as_one_does() -> None:
    with NetHosts(2) as hosts:
        outcomes = hosts.run([sys.executable, str(JOBS / "smddp_jobs.py"), "hosts"], ranks_each=2)

    outputs = [output for _, output in outcomes]
    checks = ("reductions", "movements", "layouts", "same_bits", "asynchronous", "pairs")
    for rank, output in enumerate(outputs):
        for check in (*checks, "unasked", "splits", "forks", "callbacks", "as_gloo", "no_efa"):
            assert f"rank {rank}: {check} hold" in output, output
        assert f"rank {rank}: training hold" in output, output  # with gloo's losses, loaders forked
        assert outcomes[rank][0] == 0, output


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_the_rank_that_is_killed_is_named_on_both_hosts(victim: int) -> None:
    """Rank 0 has the job's store; 0 and 2 speak for their hosts."""
    with NetHosts(2) as hosts:
        command = [sys.executable, str(JOBS / "smddp_kill_jobs.py"), "host", str(victim)]
        outcomes = hosts.run(command, ranks_each=2)

    for rank, (code, output) in enumerate(outcomes):
        if rank == victim:
            assert code == -9, output
            continue
        assert code == 0, output
        assert f"rank {victim}" in output.split("failed with smddp: ")[1], output
