# SPDX-License-Identifier: Apache-2.0
"""MPIJob, TrainJob and AWS Batch: exactly the files and variables of their controllers, with the
commands of the example files, on digits of 2 x 2 ranks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.digits_job import EPOCHS, SETTINGS, curve
from tests.host_network import ROOT
from tests.pods.jobs import (
    BATCH,
    HOME,
    MPI_JOB,
    OMPI,
    SECRET,
    TRAIN_JOB,
    batch_variables,
    container,
    expect_success,
    hostfile,
    mpi_job,
    runtime_containers,
    start_workers,
    torch_variables,
    two_pods,
)


@pytest.mark.parametrize(
    "file", ["mpijob.yaml", pytest.param("mpijob_hyperpod.yaml", marks=pytest.mark.long)]
)
def test_mpi_job(digits: Path, losses: list[float], file: str) -> None:
    spec = mpi_job(file)
    launcher = container(spec["mpiReplicaSpecs"]["Launcher"]["template"])
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o600)

        # The launcher before the workers, and names later than all.
        pod = pods.start(
            MPI_JOB[0],
            launcher["command"],
            ssh_home=spec["sshAuthMountPath"],
            hostfile=hostfile(MPI_JOB[1:]),
            K_MPI_JOB_ROLE="launcher",
            **OMPI,
        )
        start_workers(pods, file)
        time.sleep(2)  # the delay of Kubernetes' DNS
        pods.publish_names()

        expect_success(pods, pod, losses, "MPIJob, 2 hosts (K_MPI_JOB_ROLE and /etc/mpi/hostfile)")


def test_mpi_job_as_user_1000(digits: Path, losses: list[float]) -> None:
    """As its page says; the operator then leaves the key's mode to Kubernetes."""
    home = f"{HOME[1000]}/.ssh"
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o644)
        pods.publish_names()
        command = ["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"]
        for name in MPI_JOB[1:]:
            pods.start(name, command, ssh_home=home, user=1000, K_MPI_JOB_ROLE="worker")

        pod = pods.start(
            MPI_JOB[0],
            ["train"],
            ssh_home=home,
            user=1000,
            hostfile=hostfile(MPI_JOB[1:]),
            HOME=HOME[1000],
            SM_LAUNCH_SSH_PORT="2222",
            K_MPI_JOB_ROLE="launcher",
            **OMPI,
        )

        expect_success(pods, pod, losses, "MPIJob, 2 hosts (K_MPI_JOB_ROLE and /etc/mpi/hostfile)")


def test_mpirun_as_the_launchers_command(digits: Path, losses: list[float]) -> None:
    """As most MPIJobs have it; ssh finds the hosts' keys by the image's configuration."""
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o600)
        pods.publish_names()
        start_workers(pods)
        script = ["python", "/opt/ml/code/train.py", "--epochs", str(EPOCHS)]
        names = ("PATH", "PYTHONPATH", "SM_HP_MP_PARAMETERS", "SM_CHANNEL_TRAIN", "SM_MODEL_DIR")
        exported = [word for name in (*names, "OMP_NUM_THREADS") for word in ("-x", name)]

        pod = pods.start(
            MPI_JOB[0],
            ["mpirun", "--allow-run-as-root", *exported, *script],
            ssh_home="/root/.ssh",
            hostfile=hostfile(MPI_JOB[1:]),
            SM_HP_MP_PARAMETERS=SETTINGS,
            SM_CHANNEL_TRAIN="/opt/ml/input/data/train",
            SM_MODEL_DIR="/opt/ml/model",
            **OMPI,
        )

        assert pod.finish() == 0, pods.out
        assert curve(pods.job / "model") == losses


def test_train_job_with_mpi_as_user_1000(digits: Path, losses: list[float]) -> None:
    containers = runtime_containers("trainjob_mpi.yaml")
    names = ["digits-launcher-0-0", *TRAIN_JOB]
    home = f"{HOME[1000]}/.ssh"
    with two_pods(digits, names) as pods:
        pods.make_secret(0o640)
        pods.publish_names()
        for name in names[1:]:
            node = containers["node"]
            user = node["securityContext"]["runAsUser"]
            pods.start(name, node["command"], ssh_home=home, user=user)
        launcher = containers["launcher"]
        set_here = {item["name"]: item["value"] for item in launcher["env"]}

        pod = pods.start(
            names[0],
            launcher["command"],
            ssh_home=home,
            user=launcher["securityContext"]["runAsUser"],
            hostfile=hostfile(names[1:]),
            OMPI_MCA_orte_set_default_slots="2",
            **OMPI,
            **set_here,
        )

        expect_success(pods, pod, losses, "job of a hostfile, 2 hosts (/etc/mpi/hostfile)")


@pytest.mark.parametrize("user", [0, 1000])
def test_train_job_with_torch(digits: Path, losses: list[float], user: int) -> None:
    node = runtime_containers("trainjob_torch.yaml")["node"]
    assert [one["name"] for one in node["env"]] == ["SMP_JOB_SECRET"]
    with two_pods(digits, TRAIN_JOB) as pods:
        pods.publish_names()
        running = [
            pods.start(
                name,
                node["command"],
                user=user,
                HOME=HOME[user],
                **torch_variables(number),
                **SECRET,
            )
            for number, name in enumerate(TRAIN_JOB)
        ]

        assert running[1].finish() == 0, pods.out
        expect_success(pods, running[0], losses, "TrainJob, 2 nodes (PET_NNODES)")


def test_aws_batch(digits: Path, losses: list[float]) -> None:
    definition = json.loads((ROOT / "examples/aws_batch/job_definition.json").read_text())
    nodes = definition["nodeProperties"]
    described = nodes["nodeRangeProperties"][0]["container"]
    assert [one["name"] for one in described["secrets"]] == ["SMP_JOB_SECRET"]
    assert nodes["numNodes"] == len(BATCH)
    with two_pods(digits, BATCH, "--processes", "2") as pods:
        # The second before the main node: it reports again and again.
        running = [
            pods.start(
                BATCH[number],
                described["command"],
                **batch_variables(number, len(BATCH)),
                **SECRET,
            )
            for number in (1, 0)
        ]

        assert running[0].finish() == 0, pods.out
        expect_success(pods, running[1], losses, "AWS Batch job d4c3b2a1, 2 nodes")
