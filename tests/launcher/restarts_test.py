# SPDX-License-Identifier: Apache-2.0
"""SM_LAUNCH_RESTARTS: a script that failed is started again, on all hosts, and not for ever."""

from __future__ import annotations

import json
import signal

import cluster
import pytest
from cluster import two_hosts
from jobs import make_trees
from runners import TORCHRUN, needs_mpirun, needs_torch, processes

DIES_ONCE = """
    import os, signal
    count = os.environ["SM_RESTART_COUNT"]
    print("start", count, flush=True)
    if count == "0":
        os.kill(os.getpid(), signal.SIGKILL)
"""

MPI_DIES_TWICE = """
    import os, signal
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    count = int(os.environ["SM_RESTART_COUNT"])
    print(end=f"rank {world.rank} start {count}\\n", flush=True)
    world.Barrier()
    if world.rank == world.size - 1 - count and count < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    world.Barrier()
"""


def test_a_killed_script_is_started_again(folder, run):
    [tree] = make_trees(folder, DIES_ONCE)

    result = run(tree, SM_LAUNCH_RESTARTS="1")

    assert result.code == 0, result.err
    assert result.out.splitlines() == ["start 0", "start 1"]
    assert "all ranks are started again (restart 1 of 1)" in result.err
    assert tree.succeeded
    assert not tree.failed


def test_one_exception_twice_in_a_row_is_the_scripts_own(folder, run):
    [tree] = make_trees(folder, 'print("start", flush=True)\nraise ValueError("boom")')

    result = run(tree, SM_LAUNCH_RESTARTS="5")

    assert result.code == 1
    assert result.out.count("start") == 2
    assert "failed twice in a row by one exception" in result.err
    assert "ValueError: boom" in tree.failure


def test_other_errors_end_with_the_last_restart(folder, run):
    script = """
        import os
        print("start", flush=True)
        raise ValueError("boom " + os.environ["SM_RESTART_COUNT"])
    """
    [tree] = make_trees(folder, script)

    result = run(tree, SM_LAUNCH_RESTARTS="2")

    assert result.code == 1
    assert result.out.count("start") == 3
    assert "ValueError: boom 2" in tree.failure
    assert "boom 1" not in tree.failure


def test_a_stopped_script_is_not_started_again(folder, run):
    script = """
        import os, signal
        print("start", flush=True)
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
    """
    [tree] = make_trees(folder, script)

    result = run(tree, SM_LAUNCH_RESTARTS="2")

    assert result.code == 143
    assert result.out.count("start") == 1


def test_without_the_setting_nothing_is_started_again(folder, run):
    [tree] = make_trees(folder, 'import os\nassert "SM_RESTART_COUNT" not in os.environ\n1 / 0')

    result = run(tree)

    assert result.code == 1
    assert "ZeroDivisionError" in tree.failure


TORCHRUN_DIES_ONCE = """
    import os, signal, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    if os.environ["SM_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(total)
    os.write(1, f"rank {dist.get_rank()} total {total.item()}\\n".encode())
    dist.destroy_process_group()
"""


@needs_torch
def test_workers_of_torchrun_are_started_again(folder, run):
    [tree] = make_trees(folder, TORCHRUN_DIES_ONCE, hyperparameter=[*TORCHRUN, processes(2)])

    result = run(tree, SM_LAUNCH_RESTARTS="1")

    assert result.code == 0, result.err
    assert sorted(result.out.splitlines())[-2:] == ["rank 0 total 4.0", "rank 1 total 4.0"]
    assert tree.succeeded


@needs_torch
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
def test_workers_of_torchrun_on_both_hosts_are_started_again(folder):
    """The other host's worker fails of it, too, each time alike, and so late that this host's next
    worker would find it still there."""
    script = """
        import os, signal, time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        if os.environ["SM_RESTART_COUNT"] in "01" and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(total)
        except Exception:
            time.sleep(10)
            raise RuntimeError("the other worker is lost") from None
        os.write(1, f"rank {dist.get_rank()} total {total.item()}\\n".encode())
        dist.destroy_process_group()
    """
    trees = make_trees(folder, script, hosts=2, hyperparameter=[*TORCHRUN, processes(1)])

    with cluster.Cluster(folder, trees) as hosts:
        results = hosts.run(SM_LAUNCH_RESTARTS="2")

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for rank, result in enumerate(results):
        assert f"rank {rank} total 4.0" in result.out
        assert "restart 2 of 2" in result.err
        assert result.err.count("started again") == 2


@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
def test_ranks_of_both_hosts_are_started_again(folder):
    with two_hosts(folder, MPI_DIES_TWICE) as hosts:
        master, worker = hosts.run(SM_LAUNCH_RESTARTS="2")

    assert (master.code, worker.code) == (0, 0), master.err + worker.err
    for rank in range(4):
        for count in range(3):
            assert f"rank {rank} start {count}" in master.out
    assert "restart 2 of 2" in master.err
    assert master.tree.succeeded
    assert worker.tree.succeeded


GOES_ON = """
    import json, os, signal, time
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    count, hosts = os.environ["SM_RESTART_COUNT"], json.loads(os.environ["SM_HOSTS"])
    environment = json.loads(os.environ["SM_TRAINING_ENV"])
    assert environment["hosts"] == environment["distribution_hosts"] == hosts
    world.Barrier()
    print(end=f"rank {world.rank} of {world.size} start {count} {' '.join(hosts)}\\n", flush=True)
    while len(hosts) == 3:
        time.sleep(0.1)
"""


def lose(hosts, *lost, how, times=6, **environment):
    """Runs a job of three hosts of which some are lost one after the other."""
    running = hosts.start_all(SM_LAUNCH_RESTARTS="2", **environment)
    running[0].wait_for_line("start 0", times=times)
    for name in lost:
        if how == "unplugged":
            hosts.network.unplug(name)
        else:
            hosts.hosts[name].signal(signal.SIGKILL)
    return [host.finish() for host in running if host.name not in lost]


@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
@pytest.mark.parametrize(
    ("lost", "how"),
    [
        pytest.param(["algo-2", "algo-3"], "killed", marks=pytest.mark.long),
        (["algo-3"], "unplugged"),
    ],
)
def test_a_job_goes_on_without_hosts_that_are_lost(folder, lost, how):
    with two_hosts(folder, GOES_ON, hosts=3) as hosts:
        results = lose(hosts, *lost, how=how, SM_LAUNCH_MIN_HOSTS="1")

    master = results[0]
    assert [result.code for result in results] == [0] * len(results), master.err
    left = [name for name in ("algo-1", "algo-2", "algo-3") if name not in lost]
    for rank in range(2 * len(left)):
        assert f"rank {rank} of {2 * len(left)} start 1 {' '.join(left)}" in master.out
    told = f"Lost {', '.join(lost)}; all ranks are started again on {len(left)} hosts (restart 1"
    assert told in master.err
    assert all(result.tree.succeeded for result in results)


@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
def test_a_job_that_needs_the_host_ends_and_names_it(folder):
    with two_hosts(folder, GOES_ON, hosts=3) as hosts:
        master, worker = lose(hosts, "algo-2", how="killed", SM_LAUNCH_MIN_HOSTS="3")

    assert (master.code, worker.code) == (1, 1)
    assert "algo-2" in master.tree.failure
    assert master.out.count("start") == 6
    reason = "2 hosts are left, and SM_LAUNCH_MIN_HOSTS is 3"
    assert f"The job does not go on without algo-2: {reason}" in master.err


@pytest.mark.long  # what decides is tested in process, too
@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
def test_degrees_that_do_not_fit_the_hosts_that_are_left_are_named(folder):
    degrees = json.dumps({"pipeline_parallel_degree": 3, "microbatches": 3})
    trees = make_trees(folder, GOES_ON, hosts=3, processes=2, **{"mp-parameters": degrees})
    with cluster.Cluster(folder, trees) as hosts:
        master, worker = lose(hosts, "algo-2", how="killed", SM_LAUNCH_MIN_HOSTS="1")

    assert (master.code, worker.code) == (1, 1)
    assert "The job does not go on without algo-2: " in master.err
    assert "pipeline_parallel_degree" in master.err
