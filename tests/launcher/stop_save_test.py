# SPDX-License-Identifier: Apache-2.0
"""SIGTERM at one of two hosts, or at both: the job is saved at one step of all ranks."""

from __future__ import annotations

import random
import signal
import time

import cluster
import pytest
from cluster import Cluster
from jobs import make_trees
from runners import library, needs_mpirun, needs_torch
from training import (
    PIPELINE,
    REPLICAS,
    SHARDED,
    TRAINS,
    digests,
    options,
    resumed,
    share_checkpoints,
)


@needs_torch
@needs_mpirun
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
@pytest.mark.parametrize(
    ("settings", "stopped"),
    [
        pytest.param(PIPELINE, ["algo-2"], marks=pytest.mark.thorough),
        pytest.param(REPLICAS, ["algo-1"], marks=pytest.mark.long),
        pytest.param(SHARDED, ["algo-1", "algo-2"], marks=pytest.mark.long),
    ],
)
def test_a_stopped_job_is_saved_at_one_step_of_all_ranks(folder, settings, stopped):
    trees = make_trees(folder, TRAINS, hosts=2, processes=1, hyperparameter="how=stopped",
                       **{"mp-parameters": settings})  # fmt: skip

    share_checkpoints(trees)

    def stopped_after(updates):
        running = hosts.start_all(**options(library()))
        running[0].wait_for_line("done", times=2 * updates)
        time.sleep(random.uniform(0, 0.5))
        for name in stopped:
            hosts.hosts[name].signal(signal.SIGTERM)
        return [host.finish() for host in running]

    with Cluster(folder, trees) as hosts:
        first, again = stopped_after(3), stopped_after(2)

    for master, worker in (first, again):
        # A master that was not stopped itself calls it a failure, as SM_LAUNCH_EXIT has it.
        code = 143 if "algo-1" in stopped else 1
        assert (master.code, worker.code) == (code, code), master.err + worker.err
        assert "the job is saved, and ends with exit code 143" in master.err + master.out
    last = max(done for _, done in digests(first[0], 0))
    assert resumed(again[0]) == [(0, last)] * 2, again[0].out
    assert trees[0].read("checkpoints/newest") == "stopped_partial"
