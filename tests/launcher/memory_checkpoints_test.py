# SPDX-License-Identifier: Apache-2.0
"""SMP_CHECKPOINT_MEMORY: a job that starts again goes on from the memory of its hosts, without a
disk, also where one of them is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import make_trees
from runners import library, needs_mpirun, needs_torch, processes
from training import (
    PIPELINE,
    REPLICAS,
    SHARDED,
    TRAINS,
    check,
    digests,
    options,
    resumed,
    share_checkpoints,
)

pytestmark = pytest.mark.usefixtures("warm_scripts")
LONG = pytest.mark.long


def leftovers() -> set[Path]:
    return set(Path("/dev/shm").glob("smp-launch-*"))


@needs_torch
@needs_mpirun
@pytest.mark.parametrize(
    ("every", "disk", "resumed_at"),
    [pytest.param("1", 0, 3, marks=LONG), ("2", 0, 2), pytest.param("1", 4, 4, marks=LONG)],
)
def test_ranks_of_one_host_go_on_from_its_memory(folder, run, every, disk, resumed_at):
    [tree] = make_trees(folder, TRAINS, processes=2, hyperparameter=["how=rank", f"disk={disk}"],
                        **{"mp-parameters": PIPELINE})  # fmt: skip
    before = leftovers()

    result = run(tree, SMP_CHECKPOINT_MEMORY=every, **options(library()))

    check(result, 2, resumed_at)
    assert leftovers() <= before


@LONG
@needs_torch
@needs_mpirun
def test_without_the_variable_nothing_is_kept(folder, run):
    [tree] = make_trees(folder, TRAINS, processes=2, hyperparameter=["how=rank"],
                        **{"mp-parameters": PIPELINE})  # fmt: skip

    result = run(tree, **options(library()))

    assert result.code == 0, result.out + result.err
    assert resumed(result) == []
    assert (0, 1) in digests(result, 1)


@needs_torch
@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
@pytest.mark.parametrize("settings", [PIPELINE, REPLICAS, SHARDED])
@LONG
def test_ranks_of_two_hosts_go_on_from_their_memory(folder, settings):
    trees = make_trees(folder, TRAINS, hosts=2, processes=2, hyperparameter="how=rank",
                       **{"mp-parameters": settings})  # fmt: skip

    with Cluster(folder, trees) as hosts:
        master, worker = hosts.run(SMP_CHECKPOINT_MEMORY="1", **options(library()))

    check(master, 4, 3)
    assert worker.code == 0, worker.err


@needs_torch
@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
@pytest.mark.parametrize(
    ("settings", "lost"),
    [
        pytest.param(SHARDED, "algo-2", marks=pytest.mark.thorough),
        pytest.param(SHARDED, "algo-3", marks=LONG),
        pytest.param(REPLICAS, "algo-2", marks=LONG),
        pytest.param(REPLICAS, "algo-3", marks=LONG),
    ],
)
def test_a_lost_hosts_part_is_at_its_neighbour(folder, settings, lost):
    trees = make_trees(folder, TRAINS, hosts=3, processes=2, hyperparameter="how=host",
                       **{"mp-parameters": settings})  # fmt: skip

    with Cluster(folder, trees) as hosts:
        running = hosts.start_all(
            SMP_CHECKPOINT_MEMORY="1", SM_LAUNCH_MIN_HOSTS="2", **options(library())
        )
        running[0].wait_for_line("waits", times=6)
        hosts.hosts[lost].signal(signal.SIGKILL)
        results = [host.finish() for host in running if host.name != lost]

    check(results[0], 4, 3, compared=3)
    assert [result.code for result in results] == [0, 0]


@LONG
@needs_torch
@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
def test_a_host_without_room_has_all_take_the_disks_checkpoint(folder):
    settings = SHARDED.replace('degree": 2', 'degree": 3')
    trees = make_trees(folder, TRAINS, hosts=3, processes=1,
                       hyperparameter=["how=rank", "disk=2", "fills=1"],
                       **{"mp-parameters": settings})  # fmt: skip
    share_checkpoints(trees)

    with Cluster(folder, trees, prologue="mount -t tmpfs -o size=4m tmpfs /dev/shm") as hosts:
        results = hosts.run(SMP_CHECKPOINT_MEMORY="1", **options(library()))

    check(results[0], 3, 2)
    assert [result.code for result in results] == [0, 0, 0]
    assert "the state in memory is not used" in results[0].err + results[0].out
    assert "No space left on device" in results[0].err + results[0].out


@needs_torch
def test_a_job_that_is_not_started_by_train_needs_a_folder(folder, run):
    script = """
        import os
        del os.environ["SMP_MEMORY_FOLDER"]
        import smdistributed.modelparallel.torch as smp
        smp.init()
        smp.checkpoint_in_memory("/checkpoints")
    """
    [tree] = make_trees(folder, script, hyperparameter=[processes(1)])

    result = run(tree, SMP_CHECKPOINT_MEMORY="2", **options(library()))

    assert result.code == 1
    assert "SMP_CHECKPOINT_MEMORY is 2, and SMP_MEMORY_FOLDER is not set" in tree.failure
