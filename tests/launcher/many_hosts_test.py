# SPDX-License-Identifier: Apache-2.0
"""A job on as many hosts as a machine of two cores bears in a test."""

from __future__ import annotations

import signal

import cluster
import pytest
from host_load import Load
from many_hosts_job import ManyHosts

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there"),
]
HOSTS, RANKS_EACH = 32, 4
RANKS = HOSTS * RANKS_EACH


def test_all_ranks_of_many_hosts_are_heard_and_nothing_grows_on_a_worker(folder):
    with ManyHosts(folder, HOSTS, RANKS_EACH) as job:
        ups = job.start_ranks()
        worker = Load.of(job.hosts["algo-32"])
        job.open_gate()
        results = job.finish()

    assert len(ups) == RANKS
    assert [result.code for result in results] == [0] * HOSTS, results[0].err
    assert all(result.tree.succeeded for result in results)
    # Of mpirun and of the ssh that started its daemon, whatever the number of hosts.
    assert worker.connections <= 4
    assert worker.descriptors < 64


def test_a_rank_that_fails_ends_many_hosts_and_is_named_on_each(folder):
    with ManyHosts(folder, HOSTS, RANKS_EACH) as job:
        job.start_ranks(failing=RANKS - 1)
        job.open_gate()
        results = job.finish()

    assert [result.code for result in results] == [1] * HOSTS, results[0].err
    assert all(f"rank {RANKS - 1}" in result.tree.failure for result in results)


def test_a_lost_host_of_many_is_named_on_each_other(folder):
    with ManyHosts(folder, HOSTS, RANKS_EACH) as job:
        job.start_ranks()
        job.hosts["algo-32"].signal(signal.SIGKILL)
        results = job.finish(without="algo-32")

    assert [result.code for result in results] == [1] * (HOSTS - 1), results[0].err
    assert all("algo-32" in result.tree.failure for result in results)
