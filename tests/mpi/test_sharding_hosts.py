# SPDX-License-Identifier: Apache-2.0
"""Parameters gathered between hosts, which are network namespaces."""

from __future__ import annotations

import sys

import pytest
import torch
from jobs import sharding_jobs

from tests.host_network import lacks
from tests.mpi.net_hosts import JOBS, NetHosts

LACKS = lacks()


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
@pytest.mark.parametrize(
    ("backend", "steps"),
    [
        ("auto", "steps"),
        pytest.param("gloo", "steps", marks=pytest.mark.long),
        pytest.param("auto", "flat", marks=pytest.mark.long),
        pytest.param("gloo", "flat", marks=pytest.mark.long),
    ],
)
def test_three_steps_between_hosts_gather_what_one_process_has(tmp_path, backend, steps) -> None:
    """gloo's steps are ours; what is used without asking, smddp, makes its own. In one step,
    without sdp_hierarchical_allgather, both are gloo's."""
    with NetHosts(2) as hosts:
        outcomes = hosts.run(
            [sys.executable, str(JOBS / "three_steps.py"), str(tmp_path), backend, steps],
            ranks_each=2, SMP_TIMEOUT_SECONDS="120")  # fmt: skip

    assert [code for code, _ in outcomes] == [0] * 4, outcomes
    wanted, losses = sharding_jobs.alone("strange", "sign", 4, replicas=4, microbatches=2)
    ours = backend == "gloo" and steps == "steps"
    for rank in range(4):
        state, own_losses, name, within, across = torch.load(tmp_path / f"{rank}.pt")
        assert name == ("smddp" if (backend, steps) == ("auto", "steps") else "gloo")
        assert within == ([rank // 2 * 2, rank // 2 * 2 + 1] if ours else None)
        assert across == ([rank % 2, rank % 2 + 2] if ours else None)
        for name, value in wanted.items():
            assert name == "seen" or torch.equal(state[name], value), (rank, name)
        assert own_losses == [both[2 * rank : 2 * rank + 2] for both in losses]
