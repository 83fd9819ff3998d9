# SPDX-License-Identifier: Apache-2.0
"""Stops of a job on two hosts: to all of them, to the master alone, to a worker alone."""

from __future__ import annotations

import shutil
import signal

import cluster
import pytest
from cluster import two_hosts

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")


def test_a_stop_of_all_hosts_lets_every_rank_finish_once(folder):
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        worker.signal(signal.SIGTERM)
        master.signal(signal.SIGTERM)

        results = [master.finish(), worker.finish()]
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    stopped = [line.split()[-1] for line in results[0].out.splitlines() if "stopped" in line]
    assert sorted(stopped) == ["0", "1", "2", "3"]


def test_a_stop_ends_the_wait_for_a_worker(folder):
    with two_hosts(folder) as hosts:
        master = hosts.start("algo-1")
        while not list((folder / "tmp-algo-1").glob("smp-*/sshd_config")):
            assert master.process.poll() is None

        master.signal(signal.SIGTERM)

        result = master.finish()
    assert result.code == 143
    assert "asked to stop by SIGTERM" in result.tree.failure


def test_a_stop_of_the_master_alone_reaches_the_ranks_of_all_hosts(folder):
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        master.signal(signal.SIGTERM)

        results = [master.finish(), worker.finish()]
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    stopped = [line.split()[-1] for line in results[0].out.splitlines() if "stopped" in line]
    assert sorted(stopped) == ["0", "1", "2", "3"]
    assert all(result.tree.succeeded for result in results)


def test_a_stop_of_a_worker_alone_stops_its_own_ranks_and_the_master_decides(folder):
    """Ranks that die of the stop end the job for all, with one text on both hosts."""
    script = """
        import signal
        from mpi4py import MPI
        MPI.COMM_WORLD.Barrier()
        print(end="up\\n", flush=True)
        signal.pause()
    """
    with two_hosts(folder, script) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        worker.signal(signal.SIGTERM)

        results = [master.finish(), worker.finish()]
    assert [result.code for result in results] == [1, 1]
    assert " on algo-2: killed by SIGTERM (signal 15)" in results[0].tree.failure
    if shutil.which("prterun") is None:  # Open MPI 5 breaks this line
        assert "on node algo-2 exited on signal 15" in results[0].tree.failure
    assert results[0].tree.failure == results[1].tree.failure


def test_a_worker_that_was_stopped_waits_for_the_master_no_longer_than_it_may(folder):
    """Its ranks end well and those of the master go on: nobody tells the worker anything."""
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all(SM_LAUNCH_STOP_SECONDS="3")
        master.wait_for_line("up", times=4)

        worker.signal(signal.SIGTERM)

        results = [master.finish(), worker.finish()]
    assert results[1].code == 143
    assert "asked to stop by SIGTERM" in results[1].tree.failure
    assert results[0].code == 1
    assert not any(result.tree.succeeded for result in results)
