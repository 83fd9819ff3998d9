# SPDX-License-Identifier: Apache-2.0
"""A host of a job on two or three that never comes, cannot be reached, or vanishes: both sides
know it in time and say which."""

from __future__ import annotations

import os
import signal
import time

import cluster
import pytest
from cluster import two_hosts

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")


def test_the_master_notices_that_a_worker_vanished(folder):
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        os.kill(worker.pid_of_train(), signal.SIGKILL)

        result = master.finish()
    assert result.code == 1
    assert "algo-2" in result.tree.failure


def test_the_worker_notices_that_the_master_vanished(folder):
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        os.kill(master.pid_of_train(), signal.SIGKILL)

        result = worker.finish()
    assert result.code == 1
    assert "algo-1 is lost" in result.tree.failure
    assert not result.tree.succeeded


def test_a_worker_that_never_comes_is_named_with_the_reason(folder):
    with two_hosts(folder) as hosts:
        result = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert result.code == 1
    assert (
        "1 of 2 hosts could not be reached within 1 s: algo-2: TCP: port 22" in result.tree.failure
    )


def test_a_name_that_does_not_resolve_is_told_apart(folder):
    with two_hosts(folder) as hosts:
        (folder / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 algo-1\n")
        result = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert "algo-2: DNS: the name does not resolve" in result.tree.failure


def test_a_master_that_never_comes_ends_the_worker(folder):
    with two_hosts(folder) as hosts:
        result = hosts.start("algo-2", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert result.code == 1
    assert "the master algo-1 did not hand over its key in time" in result.tree.failure


def test_of_three_hosts_only_the_missing_one_is_named_and_the_other_is_told(folder):
    with two_hosts(folder, hosts=3) as hosts:
        present = hosts.start("algo-3")
        master = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="3")
        results = [master.finish(), present.finish()]

    assert "1 of 3 hosts could not be reached within 3 s: algo-2: " in results[0].tree.failure
    assert [result.code for result in results] == [1, 1]
    assert results[0].tree.failure == results[1].tree.failure


def test_an_address_where_nobody_answers_is_told_apart(folder):
    with two_hosts(folder) as hosts:
        names = "127.0.0.1 localhost\n10.77.0.1 algo-1\n10.77.0.77 algo-2\n"
        (folder / "hosts").write_text(names)
        result = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert result.code == 1
    assert "algo-2: TCP: port 22: 10.77.0.77: " in result.tree.failure


@pytest.mark.parametrize("lost", ["algo-1", "algo-2"])
def test_a_host_whose_network_is_cut_is_noticed_within_thirty_seconds(folder, lost):
    """No packet says that it is gone, as when a machine fails."""
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)
        other = worker if lost == "algo-1" else master

        hosts.network.unplug(lost)
        cut = time.monotonic()

        result = other.finish()
        took = time.monotonic() - cut
    print(f"noticed after {took:.1f} s")
    assert result.code == 1
    assert f"{lost} is lost" in result.tree.failure
    assert took < 30


def test_complaint_19_the_worker_repeats_why_the_job_failed(folder):
    """huggingface/notebooks#325: a worker's log ended with "Orted process exited"."""
    script = "from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 0: raise RuntimeError('why')\n"
    with two_hosts(folder, script) as hosts:
        _, worker = hosts.run()

    assert worker.code == 1
    assert "rank 0 on algo-1: RuntimeError: why" in worker.tree.failure[:1024]
    assert "rank 0 on algo-1: RuntimeError: why" in worker.err


def test_complaint_18_work_after_the_last_message_of_another_rank_is_not_cut_off(folder):
    """sagemaker-training-toolkit#145: nodes left early and took others' tail work with them."""
    script = """
        import time
        from mpi4py import MPI
        rank = MPI.COMM_WORLD.rank
        MPI.Finalize()
        if rank == 3:
            time.sleep(3)
        print("saved", rank, flush=True)
    """
    with two_hosts(folder, script) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for rank in range(4):
        assert f"saved {rank}" in results[0].out
