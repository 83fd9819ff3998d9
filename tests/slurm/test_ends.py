# SPDX-License-Identifier: Apache-2.0
"""Ends of Slurm's jobs: stopped, queued again, failed, and when a node is lost."""

from __future__ import annotations

import random
import time

import pytest

from tests.slurm.jobs import EXAMPLES, WAITS, MakeJob
from tests.slurm.slurm_cluster import SlurmCluster


# A time limit is a minute at least.
@pytest.mark.parametrize("end", ["scancel", pytest.param("time limit", marks=pytest.mark.long)])
def test_a_stop_reaches_the_ranks(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob, end: str
) -> None:
    tree = make_job(WAITS)

    job = cluster.sbatch(EXAMPLES / "train.sbatch", TREE=str(tree), **variables)
    cluster.wait_for_line(job, "all up")
    if end == "scancel":
        cluster.run("scancel", job)
    else:
        cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    ended = cluster.wait(job)

    assert ended.state == ("CANCELLED" if end == "scancel" else "TIMEOUT")
    cluster.wait_until_idle()
    out = cluster.output(job)
    for rank in range(4):
        assert out.count(f"stopped {rank}") == 1, out


def test_a_job_is_queued_again_and_knows_it(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob
) -> None:
    again = "import os\nif os.environ.get('SLURM_RESTART_COUNT') == '1': sys.exit(0)\n"
    tree = make_job(WAITS.replace("while True:", again + "while True:"))

    job = cluster.sbatch(
        "--open-mode=append", EXAMPLES / "train.sbatch", TREE=str(tree), **variables
    )
    cluster.wait_for_line(job, "all up")
    cluster.run("scontrol", "requeue", job)
    cluster.wait_for_line(job, "2 nodes, restart 1")
    ended = cluster.wait(job)

    assert ended.state == "COMPLETED", ended.out
    assert (tree / "output/success").exists()


def test_a_script_that_fails_fails_the_job(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob
) -> None:
    tree = make_job(
        "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 3: raise RuntimeError('rank three has had enough')\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )

    job = cluster.sbatch(EXAMPLES / "train.sbatch", TREE=str(tree), **variables)
    ended = cluster.wait(job)

    assert ended.state == "FAILED"
    assert "rank three has had enough" in (tree / "output/failure").read_text()
    cluster.wait_until_idle()


@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.long)])
def test_scancel_at_any_time_leaves_no_process(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob, times: int
) -> None:
    tree = make_job(WAITS)
    chance = random.Random(times)
    for _ in range(times):
        job = cluster.sbatch(EXAMPLES / "train.sbatch", TREE=str(tree), **variables)
        time.sleep(chance.uniform(0.2, 4))
        cluster.run("scancel", job)
        cluster.wait(job)
        cluster.wait_until_idle()


def test_a_killed_node_is_named_within_30_seconds(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob
) -> None:
    tree = make_job(WAITS)
    lost = cluster.node(2)
    job = cluster.sbatch("--no-requeue", EXAMPLES / "train.sbatch", TREE=str(tree), **variables)
    cluster.wait_for_line(job, "all up")

    cluster.kill(lost)
    try:
        cluster.wait_for_line(job, f"host {lost} ", limit=30)
        assert f"host {lost} is lost" in cluster.output(job), cluster.output(job)
    finally:
        cluster.run("scancel", "--signal=KILL", job)
        cluster.start(lost)
        cluster.wait_until_up()
    cluster.wait_until_idle()
