# SPDX-License-Identifier: Apache-2.0
"""Engines' files and variables that cannot be meant: one sentence, before any process starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pods.jobs import (
    BATCH,
    HOME,
    MPI_JOB,
    OMPI,
    TRAIN_JOB,
    batch_variables,
    hostfile,
    start_workers,
    torch_variables,
    two_pods,
)
from tests.pods.pods import Pod, Pods

LAUNCHER = {"K_MPI_JOB_ROLE": "launcher", **OMPI}


def expect_refusal(pods: Pods, pod: Pod, sentence: str) -> None:
    assert pod.finish() == 1, pods.out
    assert sentence in pod.out
    assert sentence in (pods.job / "output/failure").read_text()
    assert "Invoking" not in pod.out


def test_a_host_with_another_key_is_not_let_in(digits: Path) -> None:
    with two_pods(digits, MPI_JOB) as pods:
        pods.make_secret(0o600)
        pods.publish_names()
        start_workers(pods)
        for name in MPI_JOB[1:]:
            pods.wait_until_mounted(name)
        other = pods.folder / "secret"
        other.rename(pods.folder / "first_secret")
        pods.make_secret(0o600)

        pod = pods.start(
            MPI_JOB[0],
            ["train"],
            ssh_home="/root/.ssh",
            hostfile=hostfile(MPI_JOB[1:]),
            SM_LAUNCH_WORKER_TIMEOUT="5",
            **LAUNCHER,
        )

        assert pod.finish() == 1, pods.out
        assert "2 of 2 hosts could not be reached" in pod.out
        assert "Host key verification failed" in pod.out


@pytest.mark.parametrize(
    ("user", "mode", "home", "sentence"),
    [
        (1000, 0o600, "/root/.ssh", "there is no key pair for user id 1000"),
        (1000, 0o600, "/home/mpiuser/.ssh", "user id 1000 cannot read the job's key"),
        (0, 0o600, "", "there is no key pair for user id 0"),
    ],
    ids=["another user's home", "another user's mode", "no pair"],
)
def test_a_key_that_cannot_be_used(
    digits: Path, user: int, mode: int, home: str, sentence: str
) -> None:
    with two_pods(digits, MPI_JOB[:1]) as pods:
        pods.make_secret(mode)
        pod = pods.start(
            MPI_JOB[0],
            ["train"],
            ssh_home=home,
            user=user,
            hostfile=hostfile(MPI_JOB[1:]),
            **LAUNCHER | {"HOME": HOME[user] if home else "/nowhere"},
        )

        expect_refusal(pods, pod, sentence)


TORCH = torch_variables(1)
SECOND = batch_variables(1, 2)


@pytest.mark.parametrize(
    ("name", "hosts", "variables", "sentence"),
    [
        (MPI_JOB[0], [], LAUNCHER, "MPIJob: there is no /etc/mpi/hostfile"),
        (MPI_JOB[1], [], {"K_MPI_JOB_ROLE": "worker"}, "leave the worker's command out"),
        (
            TRAIN_JOB[0],
            TRAIN_JOB[:1],
            OMPI | {"PET_NNODES": "2"},
            "/etc/mpi/hostfile is of 1 hosts and PET_NNODES of 2",
        ),
        (TRAIN_JOB[1], [], TORCH | {"PET_MASTER_ADDR": ""}, "PET_MASTER_ADDR is not set"),
        (TRAIN_JOB[1], [], TORCH | {"PET_NODE_RANK": "2"}, "PET_NODE_RANK is 2"),
        (
            BATCH[1],
            [],
            {name: text for name, text in SECOND.items() if not name.endswith("IPV4_ADDRESS")},
            "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS is not set",
        ),
    ],
    ids=["no hostfile", "worker", "short hostfile", "no address", "number", "no main node"],
)
def test_variables_that_cannot_be(
    digits: Path, name: str, hosts: list[str], variables: dict[str, str], sentence: str
) -> None:
    with two_pods(digits, [name]) as pods:
        pod = pods.start(name, ["train"], hostfile=hostfile(hosts), **variables)

        expect_refusal(pods, pod, sentence)


def test_a_tree_of_other_hosts_than_the_hostfiles(digits: Path) -> None:
    with two_pods(digits, MPI_JOB[:1]) as pods:
        hosts = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]}
        file = pods.job / "input/config/resourceconfig.json"
        file.write_text(json.dumps(hosts))
        pod = pods.start(MPI_JOB[0], ["train"], hostfile=hostfile(MPI_JOB[1:]), **LAUNCHER)

        expect_refusal(pods, pod, "names 3 hosts, and MPIJob has 2")


def test_a_node_of_batch_that_does_not_report_is_named(digits: Path) -> None:
    with two_pods(digits, BATCH[:1], "--processes", "2") as pods:
        pod = pods.start(BATCH[0], ["train"], SM_LAUNCH_WORKER_TIMEOUT="2", **batch_variables(0, 3))

        expect_refusal(pods, pod, "2 of 3 nodes have not reported")
