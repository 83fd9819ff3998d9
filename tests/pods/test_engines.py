# SPDX-License-Identifier: Apache-2.0
"""MPIJob, TrainJob and AWS Batch: exactly the files and variables of their controllers, with the
commands of the example files, on digits of 2 x 2 ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import pods as harness
from pods import BUILD, ROOT, Pod, Pods

DIGITS = ROOT / "examples" / "digits"
SETTINGS = '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'
EPOCHS = 2
OMPI = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
}

pytestmark = pytest.mark.skipif(bool(harness.lacks()), reason=harness.lacks() or "all there")


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    sklearn = next((ROOT / ".venv/lib").glob("python3*/site-packages/sklearn/datasets/data"))
    shutil.copy(sklearn / "digits.csv.gz", folder)
    return folder


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> list[float]:
    """Of the same job by mpirun on one machine."""
    folder = tmp_path_factory.mktemp("one_machine")
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", "python"]
    subprocess.run(
        [*words, str(DIGITS / "train.py"), "--epochs", str(EPOCHS)],
        env={
            "PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": f"{BUILD}/python",
            "SM_MODEL_DIR": str(folder),
            "SM_CHANNEL_TRAIN": str(digits),
            "SM_HP_MP_PARAMETERS": SETTINGS,
            "OMP_NUM_THREADS": "1",
        },
        check=True,
        capture_output=True,
        timeout=harness.LIMIT,
    )
    return curve(folder)


def curve(folder: Path) -> list[float]:
    losses: list[float] = json.loads((folder / "curve.json").read_text())["loss"]
    return losses


def two_pods(digits: Path, names: list[str], *options: str) -> Pods:
    """Pods, made ready inside `with`, and the tree of the job."""

    class Ready(Pods):
        def __enter__(self) -> Pods:
            super().__enter__()
            channel = f"train={digits}"
            words = ["--channel", channel, "--mp-parameters", SETTINGS, *options]
            self.make_tree(*words, "--hyperparameter", f"epochs={EPOCHS}", code=DIGITS)
            return self

    return Ready(names)


def documents(name: str) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((ROOT / "examples" / "kubernetes" / name).read_text())


def container(template: dict[str, Any]) -> dict[str, Any]:
    """The first container of a pod's template."""
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def runtime_containers(name: str) -> dict[str, dict[str, Any]]:
    """Of a TrainJob's runtime, by the name of the replicated job."""
    runtime = next(documents(name))
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: container(job["template"]["spec"]["template"]) for job in jobs}


def expect_success(pods: Pods, pod: Pod, losses: list[float], cluster: str) -> None:
    code = pod.finish()
    assert code == 0, "\n".join(f"{one.name}: {one.out}" for one in pods.running)
    assert f"Cluster: {cluster}" in pod.out
    assert curve(pods.job / "output/data") == losses
    assert (pods.job / "output/success").exists()


MPI_JOB = ["digits-launcher", *(f"digits-worker-{i}.digits.default.svc" for i in range(2))]


def mpi_job_hostfile() -> str:
    return "".join(f"{name} slots=2\n" for name in MPI_JOB[1:])


def start_workers(pods: Pods, file: str) -> None:
    """A worker without a command gets the operator's."""
    spec = next(documents(file))["spec"]
    worker = container(spec["mpiReplicaSpecs"]["Worker"]["template"])
    command = worker.get("command", ["/usr/sbin/sshd", "-De"])
    for name in MPI_JOB[1:]:
        pods.start(name, command, ssh_home=spec["sshAuthMountPath"], K_MPI_JOB_ROLE="worker")


@pytest.mark.parametrize("file", ["mpijob.yaml", "mpijob_hyperpod.yaml"])
def test_mpi_job(digits: Path, losses: list[float], file: str) -> None:
    spec = next(documents(file))["spec"]
    launcher = container(spec["mpiReplicaSpecs"]["Launcher"]["template"])
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o600)

        # The launcher before the workers, and names later than all.
        pod = pods.start(
            MPI_JOB[0],
            launcher["command"],
            ssh_home=spec["sshAuthMountPath"],
            hostfile=mpi_job_hostfile(),
            K_MPI_JOB_ROLE="launcher",
            **OMPI,
        )
        start_workers(pods, file)
        time.sleep(2)  # of Kubernetes' DNS
        pods.publish_names()

        expect_success(pods, pod, losses, "MPIJob, 2 hosts (K_MPI_JOB_ROLE and /etc/mpi/hostfile)")


def test_mpirun_as_the_launchers_command(digits: Path, losses: list[float]) -> None:
    """As most MPIJobs have it; ssh finds the hosts' keys by the image's configuration."""
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o600)
        pods.publish_names()
        start_workers(pods, "mpijob.yaml")
        script = ["python", "/opt/ml/code/train.py", "--epochs", str(EPOCHS)]
        names = ("PATH", "PYTHONPATH", "SM_HP_MP_PARAMETERS", "SM_CHANNEL_TRAIN", "SM_MODEL_DIR")
        exported = [word for name in (*names, "OMP_NUM_THREADS") for word in ("-x", name)]

        pod = pods.start(
            MPI_JOB[0],
            ["mpirun", "--allow-run-as-root", *exported, *script],
            ssh_home="/root/.ssh",
            hostfile=mpi_job_hostfile(),
            SM_HP_MP_PARAMETERS=SETTINGS,
            SM_CHANNEL_TRAIN="/opt/ml/input/data/train",
            SM_MODEL_DIR="/opt/ml/model",
            **OMPI,
        )

        assert pod.finish() == 0, "\n".join(f"{one.name}: {one.out}" for one in pods.running)
        assert curve(pods.job / "model") == losses


def test_a_host_with_another_key_is_not_let_in(digits: Path) -> None:
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o600)
        pods.publish_names()
        start_workers(pods, "mpijob.yaml")
        other = pods.folder / "secret"
        other.rename(pods.folder / "first_secret")
        pods.make_secret(0o600)

        pod = pods.start(
            MPI_JOB[0],
            ["train"],
            ssh_home="/root/.ssh",
            hostfile=mpi_job_hostfile(),
            K_MPI_JOB_ROLE="launcher",
            SM_LAUNCH_WORKER_TIMEOUT="5",
            **OMPI,
        )

        assert pod.finish() == 1
        assert "2 of 2 hosts could not be reached" in pod.out
        assert "Host key verification failed" in pod.out


@pytest.mark.parametrize(
    ("user", "mode", "home", "sentence"),
    [
        (1000, 0o600, "/root/.ssh", "there is no key pair for user id 1000"),
        (1000, 0o600, "/home/mpiuser/.ssh", "user id 1000 cannot read the job's key"),
        (0, 0o600, "", "there is no key pair for user id 0"),
    ],
)
def test_a_key_that_cannot_be_used_is_one_sentence(
    digits: Path, user: int, mode: int, home: str, sentence: str
) -> None:
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(mode)
        pod = pods.start(
            MPI_JOB[0],
            ["train"],
            ssh_home=home,
            user=user,
            hostfile=mpi_job_hostfile(),
            HOME="/home/mpiuser" if user else "/nowhere",
            K_MPI_JOB_ROLE="launcher",
            **OMPI,
        )

        assert pod.finish() == 1
        assert sentence in pod.out
        assert "Invoking" not in pod.out


def test_train_job_with_mpi_as_user_1000(digits: Path, losses: list[float]) -> None:
    containers = runtime_containers("trainjob_mpi.yaml")
    names = ["digits-launcher-0-0", *(f"digits-node-0-{i}.digits" for i in range(2))]
    home = "/home/mpiuser/.ssh"
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
            hostfile="".join(f"{name} slots=2\n" for name in names[1:]),
            OMPI_MCA_orte_set_default_slots="2",
            **OMPI,
            **set_here,
        )

        expect_success(pods, pod, losses, "job of a hostfile, 2 hosts (/etc/mpi/hostfile)")


def test_train_job_with_torch(digits: Path, losses: list[float]) -> None:
    command = runtime_containers("trainjob_torch.yaml")["node"]["command"]
    names = [f"digits-node-0-{i}.digits" for i in range(2)]
    with two_pods(digits, names) as pods:
        pods.publish_names()
        running = [
            pods.start(
                name,
                command,
                PET_NNODES="2",
                PET_NPROC_PER_NODE="2",
                PET_NODE_RANK=str(number),
                PET_MASTER_ADDR=names[0],
                PET_MASTER_PORT="29400",
            )
            for number, name in enumerate(names)
        ]

        assert running[1].finish() == 0, running[1].out
        expect_success(pods, running[0], losses, "TrainJob, 2 nodes (PET_NNODES)")


def batch_variables(number: int, count: int) -> dict[str, str]:
    others = {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": Pods.address(0)}
    return {
        "AWS_BATCH_JOB_ID": f"d4c3b2a1#{number}",
        "AWS_BATCH_JOB_NUM_NODES": str(count),
        "AWS_BATCH_JOB_NODE_INDEX": str(number),
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
        **(others if number > 0 else {}),
    }


def test_aws_batch(digits: Path, losses: list[float]) -> None:
    definition = json.loads((ROOT / "examples/aws_batch/job_definition.json").read_text())
    nodes = definition["nodeProperties"]
    command = nodes["nodeRangeProperties"][0]["container"]["command"]
    names = [f"ip-10-80-0-{i + 1}" for i in range(nodes["numNodes"])]
    with two_pods(digits, names, "--processes", "2") as pods:
        # The second before the main node: it reports again and again.
        running = [
            pods.start(names[number], command, **batch_variables(number, len(names)))
            for number in (1, 0)
        ]

        assert running[0].finish() == 0, running[0].out + running[1].out
        expect_success(pods, running[1], losses, "AWS Batch job d4c3b2a1, 2 nodes")


def test_a_node_of_batch_that_does_not_report_is_named(digits: Path) -> None:
    names = ["ip-10-80-0-1"]
    with two_pods(digits, names, "--processes", "2") as pods:
        pod = pods.start(names[0], ["train"], SM_LAUNCH_WORKER_TIMEOUT="2", **batch_variables(0, 3))

        assert pod.finish() == 1
        assert "2 of 3 nodes have not reported" in pod.out
        assert "have not reported" in (pods.job / "output/failure").read_text()
