# SPDX-License-Identifier: Apache-2.0
"""Jobs on two nodes of a real Slurm, in each way of starting them, and how they end."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from conftest import EPOCHS, MakeTree, curve
from slurm_cluster import ROOT, USER, SlurmCluster

EXAMPLES = ROOT / "examples" / "slurm"
DIGITS = ROOT / "examples" / "digits"

# One rank says that all are there; each says once that it was told to stop.
WAITS = """\
import os, signal, sys, time
from mpi4py import MPI
def stop(number, frame):
    os.write(1, f"stopped {MPI.COMM_WORLD.rank}\\n".encode())
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    os.write(1, b"all up\\n")
while True:
    time.sleep(0.1)
"""
TELLS = """\
import os, time
from mpi4py import MPI
names = ("SM_CURRENT_HOST", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
told = " ".join(os.environ[name] for name in names)
MPI.COMM_WORLD.Barrier()
time.sleep(3)
os.write(1, f"told {MPI.COMM_WORLD.rank} {told}\\n".encode())
"""


def digits_options(cluster: SlurmCluster) -> list[str]:
    settings = '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'
    channel = f"train={cluster.shared / 'digits'}"
    epochs = ["--hyperparameter", f"epochs={EPOCHS}"]
    return ["--channel", channel, "--mp-parameters", settings, *epochs]


def close(one: list[float], other: list[float]) -> bool:
    """Sums over two replicas are the same in either order, so nothing may differ."""
    return one == other


@pytest.mark.parametrize("user", ["root", USER])
def test_train_once_a_node(
    cluster: SlurmCluster,
    variables: dict[str, str],
    make_tree: MakeTree,
    losses: list[float],
    user: str,
) -> None:
    tree = make_tree(DIGITS, *digits_options(cluster))

    job = cluster.sbatch(EXAMPLES / "train.sbatch", user=user, TREE=str(tree), **variables)
    ended = cluster.wait(job)

    assert ended.state == "COMPLETED", ended.out + cluster.logs()
    assert f"Cluster: Slurm job {job}, 2 nodes (SLURM_STEP_NODELIST)" in ended.out
    assert close(curve(tree / "output/data"), losses)
    assert (tree / "output/success").exists()
    cluster.wait_until_idle()


@pytest.mark.parametrize("user", ["root", USER])
@pytest.mark.parametrize("way", ["pmix", "mpirun"])
def test_the_script_itself(
    cluster: SlurmCluster,
    variables: dict[str, str],
    folder: Path,
    losses: list[float],
    way: str,
    user: str,
) -> None:
    script = [DIGITS / "train.py", "--epochs", EPOCHS]

    job = cluster.sbatch(
        EXAMPLES / f"{way}.sbatch", *script, user=user, SM_MODEL_DIR=str(folder), **variables
    )
    ended = cluster.wait(job)

    assert ended.state == "COMPLETED", ended.out + cluster.logs()
    assert close(curve(folder), losses)
    cluster.wait_until_idle()


def test_srun_without_pmix_needs_no_mpi(
    cluster: SlurmCluster, variables: dict[str, str], folder: Path
) -> None:
    """Open MPI would end a process that asks it there."""
    (folder / "train.py").write_text(
        "import smdistributed.modelparallel.torch as smp\n"
        "smp.init()\n"
        "print('rank', smp.rank(), smp.size(), smp.local_rank(), smp.local_size())\n"
    )

    done = cluster.run(
        "srun", "-N2", "--ntasks-per-node=2", "python", folder / "train.py", **variables
    )

    assert done.returncode == 0, done.stdout
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert ranks == ["rank 0 4 0 2", "rank 1 4 1 2", "rank 2 4 0 2", "rank 3 4 1 2"]


def test_smddp_joins_a_step(cluster: SlurmCluster, variables: dict[str, str], folder: Path) -> None:
    (folder / "train.py").write_text(
        "import torch, torch.distributed as dist\n"
        "import smdistributed.dataparallel.torch.torch_smddp\n"
        "dist.init_process_group('smddp')\n"
        "total = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(total)\n"
        "print('sum', int(total))\n"
        "dist.destroy_process_group()\n"
    )

    done = cluster.run("srun", "-N2", "-n4", "python", folder / "train.py", **variables)

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("sum 10") == 4


def test_two_jobs_share_the_nodes(
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    tree = make_tree(TELLS, processes=1)
    trees = [tree, tree.parent / "other"]
    shutil.copytree(tree, trees[1])

    jobs = [cluster.sbatch(EXAMPLES / "train.sbatch", TREE=str(one), **variables) for one in trees]
    ended = [cluster.wait(job) for job in jobs]

    told = []
    for job in ended:
        assert job.state == "COMPLETED", job.out + cluster.logs()
        lines = [line.split("told ", 1)[1] for line in job.out.splitlines() if "told " in line]
        assert sorted(line.split()[1] for line in lines) == [cluster.node(1), cluster.node(2)]
        assert {line.split()[4] for line in lines} == {job.number}
        told.append({line.split()[3] for line in lines})
    assert len(told[0]) == len(told[1]) == 1
    assert told[0] != told[1], "the jobs had one port"


@pytest.mark.parametrize("end", ["scancel", "time limit"])
def test_a_stop_reaches_the_ranks(
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree, end: str
) -> None:
    tree = make_tree(WAITS)

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
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    again = "import os\nif os.environ.get('SLURM_RESTART_COUNT') == '1': sys.exit(0)\n"
    tree = make_tree(WAITS.replace("while True:", again + "while True:"))

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
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    tree = make_tree(
        "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 3: raise RuntimeError('rank three has had enough')\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )

    job = cluster.sbatch(EXAMPLES / "train.sbatch", TREE=str(tree), **variables)
    ended = cluster.wait(job)

    assert ended.state == "FAILED"
    assert "rank three has had enough" in (tree / "output/failure").read_text()
    cluster.wait_until_idle()


def test_scancel_at_any_time_leaves_no_process(
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    tree = make_tree(WAITS)
    chance = random.Random(25)
    for _ in range(10 if os.environ.get("SMP_LONG_TESTS") else 3):
        job = cluster.sbatch(EXAMPLES / "train.sbatch", TREE=str(tree), **variables)
        time.sleep(chance.uniform(0.2, 4))
        cluster.run("scancel", job)
        cluster.wait(job)
        cluster.wait_until_idle()


def test_a_killed_node_is_named_within_30_seconds(
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    tree = make_tree(WAITS)
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


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["srun", "-N2", "--ntasks-per-node=2", "train"], "use srun --ntasks-per-node=1 train"),
        (["salloc", "-N2", "train"], "is on none of its nodes"),
        (["srun", "-N2", "env", "-u", "SLURM_NODEID", "train"], "SLURM_NODEID is not set"),
    ],
)
def test_what_cannot_run_is_one_sentence(
    cluster: SlurmCluster,
    variables: dict[str, str],
    make_tree: MakeTree,
    command: list[str],
    sentence: str,
) -> None:
    tree = make_tree(WAITS)

    done = cluster.run(*command, SAGEMAKER_BASE_DIR=str(tree), **variables)

    assert done.returncode != 0
    assert sentence in done.stdout
    assert sentence in (tree / "output/failure").read_text()
    assert "Invoking" not in done.stdout


def test_a_tree_of_other_hosts_is_refused_and_wins_when_the_cluster_is_off(
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    tree = make_tree(WAITS)
    hosts = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]}
    (tree / "input/config/resourceconfig.json").write_text(json.dumps(hosts))
    place = {"SAGEMAKER_BASE_DIR": str(tree), **variables}

    refused = cluster.run("srun", "-N2", "train", "--plan", **place)
    off = cluster.run("srun", "-N1", "train", "--plan", SM_LAUNCH_CLUSTER="off", **place)

    assert refused.returncode != 0
    assert "names 3 hosts, and Slurm job" in refused.stdout
    assert off.returncode == 0, off.stdout
    assert "Hosts:      algo-1, algo-2, algo-3" in off.stdout


def test_the_start_and_the_end_take_little(
    cluster: SlurmCluster, variables: dict[str, str], make_tree: MakeTree
) -> None:
    """At most 2 s from srun to the script's first line above `srun hostname`, and 1 s from the end
    of the script to that of the job; thrice of each is let pass, for machines that are busy."""
    tree = make_tree(
        "import os, time\nos.write(1, f'now {time.time()}\\n'.encode())\n", processes=1
    )
    place = {"SAGEMAKER_BASE_DIR": str(tree), **variables}
    begin = time.time()
    cluster.run("srun", "-N2", "hostname")
    plain = time.time() - begin

    begin = time.time()
    done = cluster.run("srun", "-N2", "train", **place)
    end = time.time()

    assert done.returncode == 0, done.stdout
    spoken = [float(line.split("now ")[1]) for line in done.stdout.splitlines() if "now " in line]
    start, rest = min(spoken) - begin - plain, end - max(spoken)
    print(f"start {start:.2f} s above srun hostname ({plain:.2f} s), end {rest:.2f} s")
    assert start < 3 * 2
    assert rest < 3 * 1
