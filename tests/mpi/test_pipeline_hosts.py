# SPDX-License-Identifier: Apache-2.0
"""The pipeline over two hosts, which are network namespaces: some messages go through shared
memory, some through the network."""

from __future__ import annotations

import secrets
import sys

import pytest

from tests.host_network import lacks
from tests.mpi.net_hosts import JOBS, NetHosts

LACKS = lacks()


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
@pytest.mark.parametrize("secret", ["", secrets.token_hex(32)], ids=["trusted", "secret"])
@pytest.mark.parametrize("job", ["pipeline", "replicas"])
def test_two_hosts_give_the_bits_of_one_process(job: str, secret: str) -> None:
    with NetHosts(2) as hosts:
        command = [sys.executable, str(JOBS / "pipeline_hosts_job.py"), job]
        outcomes = hosts.run(command, ranks_each=2, SMP_JOB_SECRET=secret)

    for rank, (status, output) in enumerate(outcomes):
        assert status == 0, output
        assert f"rank {rank}: the bits of one process" in output
        assert not secret or secret not in output
    told = "authenticated by the job's secret" if secret else "trusted network"
    assert told in outcomes[0][1]
