# SPDX-License-Identifier: Apache-2.0
"""Jobs as the example files describe them: their commands, and the variables of their engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.digits_job import DIGITS, curve, make_tree, tree_options
from tests.host_network import ROOT
from tests.pods.pods import Pod, Pods

HOME = {0: "/root", 1000: "/home/mpiuser"}  # by user

# Variables of both controllers, in launchers of MPI.
OMPI = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
}
MPI_JOB = ["digits-launcher", *(f"digits-worker-{i}.digits.default.svc" for i in range(2))]
TRAIN_JOB = [f"digits-node-0-{i}.digits" for i in range(2)]
BATCH = [f"ip-10-80-0-{i + 1}" for i in range(2)]


def hostfile(names: list[str]) -> str:
    return "".join(f"{name} slots=2\n" for name in names)


def torch_variables(number: int) -> dict[str, str]:
    return {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": str(number),
        "PET_MASTER_ADDR": TRAIN_JOB[0],
        "PET_MASTER_PORT": "29400",
    }


def batch_variables(number: int, count: int) -> dict[str, str]:
    others = {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "10.80.0.1"}
    return {
        "AWS_BATCH_JOB_ID": f"d4c3b2a1#{number}",
        "AWS_BATCH_JOB_NUM_NODES": str(count),
        "AWS_BATCH_JOB_NODE_INDEX": str(number),
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
        **(others if number > 0 else {}),
    }


def two_pods(digits: Path, names: list[str], *options: str) -> Pods:
    """Pods that have the tree of the job inside `with`."""

    class Ready(Pods):
        def __enter__(self) -> Pods:
            super().__enter__()
            make_tree(self.job, DIGITS, *tree_options(digits), *options)
            return self

    return Ready(names)


def documents(name: str) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((ROOT / "examples" / "kubernetes" / name).read_text())


def container(template: dict[str, Any]) -> dict[str, Any]:
    """The first container of a pod's template."""
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def mpi_job(file: str) -> dict[str, Any]:
    """Specification of an MPIJob."""
    found: dict[str, Any] = next(documents(file))["spec"]
    return found


def runtime_containers(name: str) -> dict[str, dict[str, Any]]:
    """Containers of a TrainJob's runtime, by the name of the replicated job."""
    runtime = next(documents(name))
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: container(job["template"]["spec"]["template"]) for job in jobs}


# What an engine's secret holds, and the launcher's refusal to go on without it.
SECRET = {"SMP_JOB_SECRET": "of the job, which no stranger knows", "SM_LAUNCH_AUTH": "require"}


def start_workers(pods: Pods, file: str = "mpijob.yaml") -> None:
    """A worker without a command gets the operator's."""
    spec = mpi_job(file)
    worker = container(spec["mpiReplicaSpecs"]["Worker"]["template"])
    command = worker.get("command", ["/usr/sbin/sshd", "-De"])
    for name in MPI_JOB[1:]:
        pods.start(name, command, ssh_home=spec["sshAuthMountPath"], K_MPI_JOB_ROLE="worker")


def expect_success(pods: Pods, pod: Pod, losses: list[float], cluster: str) -> None:
    code = pod.finish()
    assert code == 0, pods.out
    assert f"Cluster: {cluster}" in pod.out
    assert "hosts and ranks prove by" in pod.out
    assert "ranks are authenticated by the job's secret" in pods.out
    assert curve(pods.job / "output/data") == losses
    assert (pods.job / "output/success").exists()
