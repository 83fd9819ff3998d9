# SPDX-License-Identifier: Apache-2.0
"""Jobs that cannot run on Slurm: one sentence, before any process starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.jobs import WAITS, MakeJob, with_pyxis
from tests.slurm.slurm_cluster import USER, SlurmCluster

# The step's PMIx has addresses of the versions that the image's Open MPI speaks; one has not.
SPOKEN = ("41", "4", "3", "21", "2")
NEWER_PMIX = ["env", *(f"--unset=PMIX_SERVER_URI{one}" for one in SPOKEN), "PMIX_VERSION=7.1.0"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["srun", "-N2", "--ntasks-per-node=2", "train"], "use srun --ntasks-per-node=1 train"),
        (["salloc", "-N2", "train"], "is on none of its nodes"),
        (["srun", "-N2", "env", "-u", "SLURM_NODEID", "train"], "SLURM_NODEID is not set"),
        (["srun", "-N2", "env", "SLURM_STEP_NODELIST=n[1-3]", "train"], "is of 3 hosts and"),
        (["srun", "-N2", "--mpi=pmix", *NEWER_PMIX, "train"], "PMIx 7.1.0, which serves none"),
    ],
)
def test_what_cannot_run_is_one_sentence(
    cluster: SlurmCluster,
    variables: dict[str, str],
    make_job: MakeJob,
    command: list[str],
    sentence: str,
) -> None:
    tree = make_job(WAITS)

    done = cluster.run(*command, SAGEMAKER_BASE_DIR=str(tree), **variables)

    assert done.returncode != 0
    assert sentence in done.stdout
    assert sentence in (tree / "output/failure").read_text()
    assert "Invoking" not in done.stdout


def test_a_script_whose_pmix_open_mpi_cannot_talk_to(
    cluster: SlurmCluster, variables: dict[str, str], folder: Path
) -> None:
    (folder / "train.py").write_text(
        "import smdistributed.modelparallel.torch as smp\nsmp.init()\nprint('begun')\n"
    )

    done = cluster.run(
        "srun", "-N2", "--mpi=pmix", *NEWER_PMIX, "python", folder / "train.py", **variables
    )

    assert done.returncode != 0
    assert "PMIx 7.1.0, which serves none" in done.stdout
    assert "begun" not in done.stdout


def test_a_root_that_is_none_is_one_sentence(
    cluster: SlurmCluster, variables: dict[str, str], folder: Path, make_job: MakeJob
) -> None:
    tree = make_job(WAITS)
    options = ["-N2", "--container-image=an", f"--container-mounts={tree}:/opt/ml"]

    done = cluster.run(
        "srun", *options, "--container-remap-root", "train", user=USER,
        **with_pyxis(folder, variables),
    )  # fmt: skip

    assert done.returncode != 0
    assert "start the container as that user" in (tree / "output/failure").read_text()
    assert "all up" not in done.stdout


def test_a_tree_of_other_hosts_is_refused_and_wins_when_the_cluster_is_off(
    cluster: SlurmCluster, variables: dict[str, str], make_job: MakeJob
) -> None:
    tree = make_job(WAITS)
    hosts = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]}
    (tree / "input/config/resourceconfig.json").write_text(json.dumps(hosts))
    place = {"SAGEMAKER_BASE_DIR": str(tree), **variables}

    refused = cluster.run("srun", "-N2", "train", "--plan", **place)
    off = cluster.run("srun", "-N1", "train", "--plan", SM_LAUNCH_CLUSTER="off", **place)

    assert refused.returncode != 0
    assert "names 3 hosts, and Slurm job" in refused.stdout
    assert off.returncode == 0, off.stdout
    assert "Hosts:      algo-1, algo-2, algo-3" in off.stdout
