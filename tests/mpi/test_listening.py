# SPDX-License-Identifier: Apache-2.0
"""Addresses at which the ranks of a job listen: those where other ranks come, and no more."""

from __future__ import annotations

import re
import secrets
import sys

import pytest
from launching import run_torchrun

from tests.host_network import lacks
from tests.mpi.net_hosts import JOBS, NetHosts

LACKS = lacks()


def listeners(output: str) -> set[str]:
    assert len(re.findall(r"^rank \d ready$", output, re.MULTILINE)) > 0, output
    return set(re.findall(r"^rank \d listens at (\S+)$", output, re.MULTILINE))


def test_ranks_of_one_host_listen_at_the_loopback_alone() -> None:
    # torchrun's agent serves its store at all addresses; that is no process of ours.
    outcome = run_torchrun(2, "listening_job.py", SMP_JOB_SECRET=secrets.token_hex(32))

    assert outcome.code == 0, outcome.output
    assert listeners(outcome.output) == {"127.0.0.1"}, outcome.output


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
def test_the_store_of_one_host_listens_at_the_loopback_whatever_its_name() -> None:
    with NetHosts(1) as hosts:
        outcomes = hosts.run(
            [sys.executable, str(JOBS / "listening_job.py")], ranks_each=2, GLOO_SOCKET_IFNAME="lo"
        )

    for status, output in outcomes:
        assert status == 0, output
        assert listeners(output) == {"127.0.0.1"}, output


@pytest.mark.skipif(bool(LACKS), reason=LACKS)
def test_ranks_of_two_hosts_listen_at_their_network() -> None:
    with NetHosts(2) as hosts:
        outcomes = hosts.run(
            [sys.executable, str(JOBS / "listening_job.py")],
            ranks_each=1,
            SMP_JOB_SECRET=secrets.token_hex(32),
        )
        addresses = [hosts.address(name) for name in hosts.names]

    for (status, output), own in zip(outcomes, addresses, strict=True):
        assert status == 0, output
        assert listeners(output) <= {own, "127.0.0.1"}, output
    assert addresses[0] in listeners(outcomes[0][1])
