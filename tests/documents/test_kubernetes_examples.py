# SPDX-License-Identifier: Apache-2.0
"""examples/kubernetes beside the objects' published models: no unknown field, no other type.

TrainJob, its runtime, JobSet and pods are those of the package kubeflow-trainer-api, which is made
from the engine's own schema. MPIJob's few fields are of none: they stand here, as the MPI operator
0.8 documents `kubeflow.org/v2beta1`; its pods are Kubernetes' own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from kubeflow_trainer_api import models
from pydantic import BaseModel, ConfigDict, ValidationError

from tests.documents.named_tests import ROOT

EXAMPLES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
Object = dict[str, Any]


class Strict(BaseModel):
    """Takes no field that it does not have, and no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SchedulingPolicy(Strict):
    minAvailable: int = 0  # noqa: N815 - Kubernetes' names, here and below
    minResources: dict[str, int | str] = {}  # noqa: N815
    priorityClass: str = ""  # noqa: N815
    queue: str = ""
    scheduleTimeoutSeconds: int = 0  # noqa: N815


class RunPolicy(Strict):
    activeDeadlineSeconds: int = 0  # noqa: N815
    backoffLimit: int = 0  # noqa: N815
    cleanPodPolicy: Literal["None", "Running", "All"] = "None"  # noqa: N815
    managedBy: str = ""  # noqa: N815
    schedulingPolicy: SchedulingPolicy = SchedulingPolicy()  # noqa: N815
    suspend: bool = False
    ttlSecondsAfterFinished: int = 0  # noqa: N815


class ReplicaSpec(Strict):
    replicas: int = 1
    restartPolicy: Literal["Never", "OnFailure", "Always", "ExitCode"] = "Never"  # noqa: N815
    template: Object


class ReplicaSpecs(Strict):
    Launcher: ReplicaSpec
    Worker: ReplicaSpec


class MPIJobSpec(Strict):
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "AtStartup"  # noqa: N815
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"  # noqa: N815
    mpiReplicaSpecs: ReplicaSpecs  # noqa: N815
    runLauncherAsWorker: bool = False  # noqa: N815
    runPolicy: RunPolicy = RunPolicy()  # noqa: N815
    slotsPerWorker: int = 1  # noqa: N815
    sshAuthMountPath: str = "/root/.ssh"  # noqa: N815


def fits(model: Any, written: Object) -> None:
    """Published models leave out what they do not know, so what is written must come back."""
    assert model.from_dict(copy.deepcopy(written)).to_dict() == written


def check_mpi_job(written: Object) -> None:
    assert written["apiVersion"] == "kubeflow.org/v2beta1"
    assert set(written) == {"apiVersion", "kind", "metadata", "spec"}
    fits(models.IoK8sApimachineryPkgApisMetaV1ObjectMeta, written["metadata"])
    spec = MPIJobSpec.model_validate(written["spec"])
    for replica in (spec.mpiReplicaSpecs.Launcher, spec.mpiReplicaSpecs.Worker):
        fits(models.IoK8sApiCoreV1PodTemplateSpec, replica.template)


def check_trainer(written: Object) -> None:
    assert written["apiVersion"] == "trainer.kubeflow.org/v1alpha1"
    fits(getattr(models, f"TrainerV1alpha1{written['kind']}"), written)


CHECKS: dict[str, Callable[[Object], None]] = {
    "MPIJob": check_mpi_job,
    "TrainJob": check_trainer,
    "TrainingRuntime": check_trainer,
}


def objects(file: Path) -> list[Object]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_has_known_fields_of_known_types(file: Path) -> None:
    for written in objects(file):
        CHECKS[written["kind"]](written)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_a_trainer_of_a_job_runs_on_a_runtime_of_its_file(file: Path) -> None:
    runtimes = [
        one["metadata"]["name"] for one in objects(file) if one["kind"] == "TrainingRuntime"
    ]
    used = [one["spec"]["runtimeRef"]["name"] for one in objects(file) if one["kind"] == "TrainJob"]
    assert used == runtimes


def mounted(pod: Object) -> None:
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["name"] for one in pod["containers"] for mount in one["volumeMounts"]}
    assert mounts == volumes


def pods(written: Any) -> list[Object]:
    """All specifications of pods below."""
    if isinstance(written, list):
        return [pod for one in written for pod in pods(one)]
    if not isinstance(written, dict):
        return []
    return [written] if "containers" in written else pods(list(written.values()))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_what_a_container_mounts_is_a_volume_of_its_pod(file: Path) -> None:
    found = pods(objects(file))
    assert found
    for pod in found:
        mounted(pod)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("mpijob", ["spec", "slotsPerWorkers"], 2),
        ("mpijob", ["spec", "slotsPerWorker"], "2"),
        ("mpijob", ["spec", "runPolicy", "cleanPodPolicy"], "Sometimes"),
        ("mpijob", ["spec", "mpiReplicaSpecs", "Worker", "template", "spec", "image"], "an:image"),
        ("trainjob_mpi", ["spec", "mlPolicy", "mpi", "processes"], 2),
        ("trainjob_mpi", ["spec", "mlPolicy", "numNodes"], "two"),
        ("trainjob_torch", ["spec", "template", "spec", "replicatedJobs"], "node"),
    ],
)
def test_a_mistake_would_be_seen(name: str, path: list[str], value: object) -> None:
    written = objects(ROOT / "examples" / "kubernetes" / f"{name}.yaml")[0]
    place = written
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    with pytest.raises((AssertionError, ValidationError)):
        CHECKS[written["kind"]](written)
