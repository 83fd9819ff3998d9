# SPDX-License-Identifier: Apache-2.0
"""Jobs on two nodes of a real Slurm, in each way of starting them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.digits_job import DIGITS, EPOCHS, curve
from tests.slurm.jobs import EXAMPLES, TELLS, MakeJob, with_pyxis
from tests.slurm.slurm_cluster import USER, SlurmCluster

AUTHENTICATED = "ranks are authenticated by the job's secret"


@pytest.mark.parametrize("user", ["root", USER])
def test_train_once_a_node(
    cluster: SlurmCluster,
    variables: dict[str, str],
    digits: Path,
    losses: list[float],
    user: str,
) -> None:
    job = cluster.sbatch(EXAMPLES / "train.sbatch", user=user, TREE=str(digits), **variables)
    ended = cluster.wait(job)

    assert ended.state == "COMPLETED", ended.out + cluster.logs()
    assert f"Cluster: Slurm job {job}, 2 nodes (SLURM_STEP_NODELIST)" in ended.out
    assert "hosts and ranks prove by SMP_JOB_SECRET" in ended.out
    assert AUTHENTICATED in ended.out
    assert curve(digits / "output/data") == losses
    assert (digits / "output/success").exists()
    cluster.wait_until_idle()


@pytest.mark.parametrize("user", [pytest.param("root", marks=pytest.mark.long), USER])
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
    assert AUTHENTICATED in ended.out
    assert curve(folder) == losses
    cluster.wait_until_idle()


def test_in_the_image_with_pyxis(
    cluster: SlurmCluster,
    variables: dict[str, str],
    folder: Path,
    digits: Path,
    losses: list[float],
) -> None:
    """As enroot runs it: no entry point, no rights, the nodes' network, the tree as /opt/ml."""
    image = {"TREE": str(digits), "IMAGE": "smp-train.sqsh"}

    job = cluster.sbatch(
        EXAMPLES / "pyxis.sbatch", user=USER, **image, **with_pyxis(folder, variables)
    )
    ended = cluster.wait(job)

    assert ended.state == "COMPLETED", ended.out + cluster.logs()
    assert curve(digits / "output/data") == losses
    cluster.wait_until_idle()


def test_srun_without_pmix_needs_no_mpi(
    cluster: SlurmCluster, variables: dict[str, str], folder: Path
) -> None:
    """Open MPI would end a process that asks it there."""
    (folder / "train.py").write_text(
        "import os, smdistributed.modelparallel.torch as smp\n"
        "smp.init()\n"
        "ranks = smp.rank(), smp.size(), smp.local_rank(), smp.local_size()\n"
        "os.write(1, b'rank %d %d %d %d\\n' % ranks)\n"
    )

    done = cluster.run(
        "srun", "-N2", "--ntasks-per-node=2", "python", folder / "train.py", **variables
    )

    assert done.returncode == 0, done.stdout
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert ranks == ["rank 0 4 0 2", "rank 1 4 1 2", "rank 2 4 0 2", "rank 3 4 1 2"]


def test_smddp_joins_a_step(cluster: SlurmCluster, variables: dict[str, str], folder: Path) -> None:
    (folder / "train.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "import smdistributed.dataparallel.torch.torch_smddp\n"
        "dist.init_process_group('smddp')\n"
        "total = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(total)\n"
        "os.write(1, b'sum %d\\n' % int(total))\n"
        "dist.destroy_process_group()\n"
    )

    done = cluster.run("srun", "-N2", "-n4", "python", folder / "train.py", **variables)

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("sum 10") == 4


def test_two_jobs_share_the_nodes(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob
) -> None:
    tree = make_job(TELLS, processes=1)
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
