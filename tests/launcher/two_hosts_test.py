# SPDX-License-Identifier: Apache-2.0
"""Two `train` processes on two emulated hosts: keys, sshd, mpirun, status, signals, losses."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import make_trees

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

TELL = """
    import os, socket
    from mpi4py import MPI
    total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
    print("sum", total, socket.gethostname(), os.environ["SM_CURRENT_HOST"],
          os.environ["MASTER_ADDR"], os.environ.get("OF_THIS_HOST"), os.environ["SM_HP_EPOCHS"])
"""

RUN_UNTIL_STOPPED = """
    import os, signal, sys
    from mpi4py import MPI
    def stop(number, frame):
        print("stopped", MPI.COMM_WORLD.rank, flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    MPI.COMM_WORLD.Barrier()
    print("up", flush=True)
    while True:
        signal.pause()
"""


def two_hosts(folder: Path, script: str, **options: object) -> Cluster:
    trees = make_trees(
        folder, script, **({"hosts": 2, "processes": 2, "hyperparameter": "epochs=3"} | options)
    )
    return Cluster(folder, trees)


def test_ranks_run_on_both_hosts_each_with_its_own_environment(folder):
    with two_hosts(folder, TELL) as hosts:
        master = hosts.start("algo-1", OF_THIS_HOST="one")
        worker = hosts.start("algo-2", OF_THIS_HOST="two")
        results = [master.finish(), worker.finish()]
        left = [path for name in hosts.names for path in (folder / f"tmp-{name}").glob("smp-*")]

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for rank, host, own in ((0, "algo-1", "one"), (1, "algo-1", "one"), (2, "algo-2", "two")):
        line = f"[1,mpirank:{rank},{host}]<stdout>:sum 6 {host} {host} algo-1 {own} 3\n"
        assert line in results[0].out
    assert all(result.tree.succeeded for result in results)
    assert "The master reports exit code 0" in results[1].err
    assert left == []  # keys and configurations are gone


def test_the_worker_may_come_first(folder):
    with two_hosts(folder, TELL) as hosts:
        worker = hosts.start("algo-2")
        while not (folder / "tmp-algo-2").exists() or not list(
            (folder / "tmp-algo-2").glob("smp-*")
        ):
            assert worker.process.poll() is None
        master = hosts.start("algo-1")

        assert (master.finish().code, worker.finish().code) == (0, 0)


def test_an_exception_on_rank_3_gives_both_hosts_its_traceback(folder):
    script = """
        import signal
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 3:
            raise ValueError("boom on three")
        signal.pause()
    """
    with two_hosts(folder, script) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [1, 1]
    failures = [result.tree.failure for result in results]
    assert failures[0] == failures[1]
    assert 'ErrorMessage "rank 3 on algo-2: ValueError: boom on three' in failures[0][:1024]
    assert not any(result.tree.succeeded for result in results)


def test_a_stop_of_all_hosts_lets_every_rank_finish_once(folder):
    with two_hosts(folder, RUN_UNTIL_STOPPED) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        worker.signal(signal.SIGTERM)
        master.signal(signal.SIGTERM)

        results = [master.finish(), worker.finish()]
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    stopped = [line.split()[-1] for line in results[0].out.splitlines() if "stopped" in line]
    assert sorted(stopped) == ["0", "1", "2", "3"]


def test_the_master_notices_that_a_worker_vanished(folder):
    with two_hosts(folder, RUN_UNTIL_STOPPED) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        os.kill(worker.pid_of_train(), signal.SIGKILL)

        result = master.finish()
    assert result.code == 1
    assert "algo-2" in result.tree.failure


def test_the_worker_notices_that_the_master_vanished(folder):
    with two_hosts(folder, RUN_UNTIL_STOPPED) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        os.kill(master.pid_of_train(), signal.SIGKILL)

        result = worker.finish()
    assert result.code == 1
    assert "algo-1 is lost" in result.tree.failure
    assert not result.tree.succeeded


def test_a_worker_that_never_comes_is_named_with_the_reason(folder):
    with two_hosts(folder, TELL) as hosts:
        result = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert result.code == 1
    assert (
        "1 of 2 hosts could not be reached within 1 s: algo-2: TCP: port 22" in result.tree.failure
    )


def test_a_stop_ends_the_wait_for_a_worker(folder):
    with two_hosts(folder, TELL) as hosts:
        master = hosts.start("algo-1")
        while not list((folder / "tmp-algo-1").glob("smp-*/sshd_config")):
            assert master.process.poll() is None

        master.signal(signal.SIGTERM)

        result = master.finish()
    assert result.code == 143
    assert "asked to stop by SIGTERM" in result.tree.failure


def test_a_name_that_does_not_resolve_is_told_apart(folder):
    with two_hosts(folder, TELL) as hosts:
        (folder / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 algo-1\n")
        result = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert "algo-2: DNS: the name does not resolve" in result.tree.failure


def test_a_master_that_never_comes_ends_the_worker(folder):
    with two_hosts(folder, TELL) as hosts:
        result = hosts.start("algo-2", SM_LAUNCH_WORKER_TIMEOUT="1").finish()

    assert result.code == 1
    assert "the master algo-1 did not hand over its key in time" in result.tree.failure


def test_a_mounted_key_pair_needs_no_exchange(folder):
    with two_hosts(folder, TELL) as hosts:
        key = folder / "pair"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        key.chmod(0o644)  # as a mount often is
        results = hosts.run(SM_LAUNCH_SSH_KEY=str(key), SM_LAUNCH_SSH_PORT="2200")

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    assert "Exchanged keys" not in results[1].err


def test_a_stale_status_file_does_not_end_the_worker(folder):
    with two_hosts(folder, TELL) as hosts:
        (folder / "tmp-algo-2").mkdir()
        (folder / "tmp-algo-2" / "done.algo-1").write_text("0\n")
        results = hosts.run()

    assert [result.code for result in results] == [0, 0]
    assert "Exchanged keys" in results[1].err


def test_a_container_of_another_job_is_refused(folder):
    with two_hosts(folder, TELL) as hosts:
        hosts.start("algo-2", TRAINING_JOB_NAME="other")
        while not (folder / "tmp-algo-2").exists() or not list(
            (folder / "tmp-algo-2").glob("smp-*")
        ):
            pass
        result = hosts.start(
            "algo-1", SM_LAUNCH_WORKER_TIMEOUT="3", TRAINING_JOB_NAME="mine"
        ).finish()

    assert result.code == 1
    assert "belongs to a job with another list of hosts" in result.tree.failure
