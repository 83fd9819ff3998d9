# SPDX-License-Identifier: Apache-2.0
"""Two `train` processes on two emulated hosts: start, ranks, end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import job_environment, make_trees

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

TELL = """
    import os, socket
    from mpi4py import MPI
    total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
    print("sum", total, socket.gethostname(), os.environ["SM_CURRENT_HOST"],
          os.environ["MASTER_ADDR"], os.environ.get("OF_THIS_HOST"), os.environ["SM_HP_EPOCHS"])
"""


def two_hosts(folder: Path, script: str, subnet: str = "10.77.0", **options: object) -> Cluster:
    trees = make_trees(
        folder, script, **({"hosts": 2, "processes": 2, "hyperparameter": "epochs=3"} | options)
    )
    return Cluster(folder, trees, subnet=subnet)


IPV6 = pytest.param(
    "fd77:",
    marks=pytest.mark.skipif(
        shutil.which("prterun") is not None,
        reason="mpirun of Open MPI 5.0.7 ends by SIGSEGV where IPv6 is alone",
    ),
)


@pytest.mark.parametrize("subnet", ["10.77.0", IPV6])
def test_ranks_run_on_both_hosts_each_with_its_own_environment(folder, subnet):
    with two_hosts(folder, TELL, subnet) as hosts:
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
    for result in results:
        assert "Block until all host DNS lookups succeed." in result.err
    assert left == []  # keys and configurations are gone


def test_complaint_23_sshd_is_searched_on_path_too(folder):
    (folder / "bin").mkdir()
    shutil.copy("/usr/sbin/sshd", folder / "bin" / "sshd")

    with two_hosts(folder, TELL) as hosts:
        hosts.prologue = "mount --bind /dev/null /usr/sbin/sshd && ! test -x /usr/sbin/sshd"
        found = hosts.run(PATH=f"{folder / 'bin'}:{job_environment()['PATH']}")
    with two_hosts(folder / "bin", TELL) as hosts:
        hosts.prologue = "mount --bind /dev/null /usr/sbin/sshd"
        missing = hosts.run(SM_LAUNCH_WORKER_TIMEOUT="5")

    assert [result.code for result in found] == [0, 0], found[0].err + found[1].err
    assert [result.code for result in missing] == [1, 1]
    assert "no sshd in /usr/sbin or on PATH" in missing[0].tree.failure


def test_the_worker_may_come_first(folder):
    with two_hosts(folder, TELL) as hosts:
        worker = hosts.start("algo-2")
        while not (folder / "tmp-algo-2").exists() or not list(
            (folder / "tmp-algo-2").glob("smp-*")
        ):
            assert worker.process.poll() is None
        master = hosts.start("algo-1")

        assert (master.finish().code, worker.finish().code) == (0, 0)


def test_the_session_that_brings_the_jobs_status_is_not_cut_off(folder):
    mv = folder / "bin" / "mv"  # the last that the worker's shell does for it
    mv.parent.mkdir()
    mv.write_text('#!/bin/sh\n/bin/mv "$@"; sleep 0.5\n')
    mv.chmod(0o755)

    with two_hosts(folder, TELL) as hosts:
        results = hosts.run(PATH=f"{mv.parent}:{job_environment()['PATH']}")

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    assert "did not take the job's status" not in results[0].err


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


def test_a_stale_status_file_does_not_end_the_worker(folder):
    with two_hosts(folder, TELL) as hosts:
        (folder / "tmp-algo-2").mkdir()
        (folder / "tmp-algo-2" / "done.algo-1").write_text("0\n")
        results = hosts.run()

    assert [result.code for result in results] == [0, 0]
    assert "Exchanged keys" in results[1].err


def test_what_another_user_put_into_tmp_keeps_no_status_away(folder):
    with two_hosts(folder, TELL) as hosts:
        tmp = folder / "tmp-algo-2"
        (tmp / "done.algo-1").mkdir(parents=True)
        (tmp / "done.algo-1" / "full").touch()
        victim = folder / "victim"
        victim.write_text("mine\n")
        (tmp / "done.algo-1.part").symlink_to(victim)
        for name in ("done.algo-1", "done.algo-1.part"):
            os.chown(tmp / name, 65534, 65534, follow_symlinks=False)
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[1].err
    assert victim.read_text() == "mine\n"


def test_the_master_may_come_first(folder):
    with two_hosts(folder, TELL) as hosts:
        master = hosts.start("algo-1")
        hosts.launch_file("algo-1", "sshd_config")
        worker = hosts.start("algo-2")

        assert (master.finish().code, worker.finish().code) == (0, 0)


def test_an_interface_that_no_host_has_is_replaced_with_a_warning(folder):
    """The SDK's local mode names `ethwe` in containers that have `eth0`."""
    with two_hosts(folder, TELL) as hosts:
        for tree in hosts.trees:
            path = tree.base / "input/config/resourceconfig.json"
            config = json.loads(path.read_text()) | {"network_interface_name": "ethwe"}
            path.write_text(json.dumps(config))
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    assert "ethwe" in results[0].err
    assert "btl_tcp_if_include eth0" in results[0].err


def test_hosts_of_an_uneven_order_agree_on_the_master(folder):
    """The service writes `hosts` unsorted; the first one is the master everywhere."""
    with two_hosts(folder, TELL) as hosts:
        for tree in hosts.trees:
            path = tree.base / "input/config/resourceconfig.json"
            config = json.loads(path.read_text())
            config["hosts"].reverse()
            for group in config.get("instance_groups", []):
                group["hosts"].reverse()
            path.write_text(json.dumps(config))
        first, second = hosts.run()

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "[1,mpirank:0,algo-2]<stdout>:sum 6 algo-2 algo-2 algo-2" in second.out
    assert "The master reports exit code 0" in first.err
