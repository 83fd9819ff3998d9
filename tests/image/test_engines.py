# SPDX-License-Identifier: Apache-2.0
"""The image itself as what Kubernetes' engines and AWS Batch start: commands of the example files,
variables and files of their controllers, one container a pod."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.digits_job import (
    DIGITS,
    copy_data,
    curve,
    losses_on_one_machine,
    make_tree,
    tree_options,
)
from tests.image.engine import ROOT, Docker
from tests.pods.jobs import (
    BATCH,
    HOME,
    MPI_JOB,
    OMPI,
    SECRET,
    TRAIN_JOB,
    batch_variables,
    container,
    hostfile,
    mpi_job,
    runtime_containers,
    torch_variables,
)
from tests.pods.pods import write_secret

LIMIT = 300  # [s] for a job of seconds


@dataclass
class Containers:
    """Pods of one job, on a network of their own; all see its tree as /opt/ml."""

    docker: Docker
    image: str
    folder: Path
    mark: str = field(default_factory=lambda: f"smp-engine-{uuid.uuid4().hex[:8]}")
    names: list[str] = field(default_factory=list)

    @property
    def job(self) -> Path:
        return self.folder / "job"

    def start(
        self,
        name: str,
        command: list[str],
        *options: str | Path,
        by_image: bool = False,
        ssh_home: str = "",
        mode: int = 0,
        hosts: str = "",
        **variables: str,
    ) -> str:
        """`command` replaces the image's entry point, as in Kubernetes, unless it goes `by_image`.
        Returns the container's name."""
        words = ["--network", self.mark, "--network-alias", name]
        words += ["--hostname", name.partition(".")[0], "--shm-size", "1g"]
        words += ["--volume", f"{self.job}:/opt/ml"]
        if ssh_home:
            secret = self.folder / "secret"
            if not secret.exists():
                write_secret(secret, mode)
            words += ["--volume", f"{secret}:{ssh_home}:ro"]
        if hosts:
            (self.folder / "hostfile").write_text(hosts)
            words += ["--volume", f"{self.folder / 'hostfile'}:/etc/mpi/hostfile:ro"]
        for variable, text in variables.items():
            words += ["--env", f"{variable}={text}"]
        if not by_image:
            words += ["--entrypoint", command[0]]
            command = command[1:]
        full_name = f"{self.mark}-{len(self.names)}"
        self.names.append(full_name)
        done = self.docker(
            "run", "--detach", "--name", full_name, *words, *options, self.image, *command
        )
        assert done.returncode == 0, done.stderr
        return full_name

    def finish(self, name: str) -> str:
        """Output of the container, once it has ended well."""
        code = self.docker("wait", name, timeout=LIMIT).stdout.strip()
        logs = {one: self.docker("logs", one) for one in self.names}
        text = "\n".join(f"{one}: {log.stdout}{log.stderr}" for one, log in logs.items())
        assert code == "0", text
        return logs[name].stdout + logs[name].stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_data(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory, data: Path) -> list[float]:
    return losses_on_one_machine(tmp_path_factory.mktemp("one_machine"), data)


@pytest.fixture
def containers(docker: Docker, image: str, tmp_path: Path, data: Path) -> Iterator[Containers]:
    """With the tree of examples/digits for two processes a host."""
    made = Containers(docker, image, tmp_path)
    make_tree(made.job, DIGITS, "--processes", 2, *tree_options(data))
    assert docker("network", "create", made.mark).returncode == 0
    yield made
    docker("rm", "--force", *made.names)
    docker("network", "rm", made.mark)


def expect_success(pods: Containers, out: str, losses: list[float], cluster: str) -> None:
    assert f"Cluster: {cluster}" in out
    assert curve(pods.job / "output/data") == losses
    assert (pods.job / "output/success").exists()


@pytest.mark.cluster
def test_mpi_job(containers: Containers, losses: list[float]) -> None:
    spec = mpi_job("mpijob.yaml")
    home = spec["sshAuthMountPath"]
    worker = container(spec["mpiReplicaSpecs"]["Worker"]["template"])
    launcher = container(spec["mpiReplicaSpecs"]["Launcher"]["template"])
    for name in MPI_JOB[1:]:
        command = worker.get("command", ["/usr/sbin/sshd", "-De"])  # the operator's
        containers.start(name, command, ssh_home=home, mode=0o600, K_MPI_JOB_ROLE="worker")

    pod = containers.start(
        MPI_JOB[0],
        launcher["command"],
        ssh_home=home,
        hosts=hostfile(MPI_JOB[1:]),
        K_MPI_JOB_ROLE="launcher",
        **OMPI,
    )

    out = containers.finish(pod)
    expect_success(
        containers, out, losses, "MPIJob, 2 hosts (K_MPI_JOB_ROLE and /etc/mpi/hostfile)"
    )


@pytest.mark.long
def test_train_job_with_mpi(containers: Containers, losses: list[float]) -> None:
    pods = runtime_containers("trainjob_mpi.yaml")
    home = f"{HOME[1000]}/.ssh"
    as_user = ["--user", "1000", "--group-add", "1000"]
    for name in TRAIN_JOB:
        containers.start(name, pods["node"]["command"], *as_user, ssh_home=home, mode=0o640)

    pod = containers.start(
        "digits-launcher-0-0",
        pods["launcher"]["command"],
        *as_user,
        ssh_home=home,
        hosts=hostfile(TRAIN_JOB),
        OMPI_MCA_orte_set_default_slots="2",
        **OMPI,
        **{item["name"]: item["value"] for item in pods["launcher"]["env"]},
    )

    out = containers.finish(pod)
    expect_success(containers, out, losses, "job of a hostfile, 2 hosts (/etc/mpi/hostfile)")


@pytest.mark.long
def test_train_job_with_torch(containers: Containers, losses: list[float]) -> None:
    command = runtime_containers("trainjob_torch.yaml")["node"]["command"]

    nodes = [
        containers.start(name, command, **torch_variables(number), **SECRET)
        for number, name in enumerate(TRAIN_JOB)
    ]

    out = containers.finish(nodes[0])
    expect_success(containers, out, losses, "TrainJob, 2 nodes (PET_NNODES)")
    containers.finish(nodes[1])


@pytest.mark.long
def test_aws_batch(docker: Docker, containers: Containers, losses: list[float]) -> None:
    """The job's command is the image's argument."""
    definition = json.loads((ROOT / "examples/aws_batch/job_definition.json").read_text())
    command = definition["nodeProperties"]["nodeRangeProperties"][0]["container"]["command"]
    count = len(BATCH)
    variables = batch_variables(0, count) | SECRET
    main = containers.start(BATCH[0], command, by_image=True, **variables)
    address = docker(
        "inspect",
        "--format",
        "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
        main,
    ).stdout.strip()
    other = batch_variables(1, count) | SECRET
    other["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = address

    node = containers.start(BATCH[1], command, by_image=True, **other)

    out = containers.finish(main)
    expect_success(containers, out, losses, "AWS Batch job d4c3b2a1, 2 nodes")
    containers.finish(node)
