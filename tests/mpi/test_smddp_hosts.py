# SPDX-License-Identifier: Apache-2.0
"""The backend smddp between hosts, which are network namespaces."""

from __future__ import annotations

import sys

import pytest

from tests.mpi.net_hosts import JOBS, NetHosts, lacks

LACKS = lacks()


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
def test_two_hosts_compute_and_train_as_one_does_and_name_the_rank_that_is_killed() -> None:
    with NetHosts(2) as hosts:
        outcomes = hosts.run([sys.executable, str(JOBS / "smddp_jobs.py"), "hosts"], ranks_each=2)

    outputs = [output for _, output in outcomes]
    checks = ("reductions", "movements", "layouts", "same_bits", "asynchronous", "pairs")
    for rank, output in enumerate(outputs):
        for check in (*checks, "unasked", "splits", "forks", "callbacks", "as_gloo", "no_efa"):
            assert f"rank {rank}: {check} hold" in output, output
        assert f"rank {rank}: training hold" in output, output  # with gloo's losses, loaders forked
    for rank in (0, 1, 2):  # rank 3, on the other host of ranks 0 and 1, was killed
        assert outcomes[rank][0] == 0, outputs[rank]
        assert "failed with smddp: " in outputs[rank], outputs[rank]
        assert "rank 3" in outputs[rank].split("failed with smddp: ")[1], outputs[rank]
