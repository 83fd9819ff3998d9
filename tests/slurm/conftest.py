# SPDX-License-Identifier: Apache-2.0
"""One cluster of two nodes for all tests; a job's tree and what its script needs on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.digits_job import (
    BUILT,
    DIGITS,
    copy_data,
    losses_on_one_machine,
    make_tree,
    tree_options,
)
from tests.slurm.jobs import MakeJob
from tests.slurm.slurm_cluster import SlurmCluster, lacks


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    reason = lacks()
    if reason:
        pytest.skip(reason)
    with SlurmCluster(2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_job_left(cluster: SlurmCluster) -> Iterator[None]:
    yield
    cluster.cancel_all()


@pytest.fixture(scope="session")
def data(cluster: SlurmCluster) -> Path:
    folder = cluster.shared / "digits"
    folder.mkdir()
    return copy_data(folder)


@pytest.fixture(scope="session")
def variables(data: Path) -> dict[str, str]:
    """Variables of jobs that start a script."""
    return {**BUILT, "SM_CHANNEL_TRAIN": str(data)}


@pytest.fixture
def folder(cluster: SlurmCluster, request: pytest.FixtureRequest) -> Path:
    """Folder of one test, on the file system that the nodes share."""
    path = cluster.shared / request.node.name.replace("/", "_").replace(" ", "_")
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    return path


@pytest.fixture
def make_job(folder: Path) -> MakeJob:
    """make_job(SCRIPT, processes=2): its tree for all hosts."""

    def make(script: str, processes: int = 2) -> Path:
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(script)
        make_tree(folder / "job", folder / "code", "--processes", processes)
        return folder / "job"

    return make


@pytest.fixture
def digits(folder: Path, data: Path) -> Path:
    """The tree of examples/digits with two processes a host."""
    make_tree(folder / "job", DIGITS, "--processes", 2, *tree_options(data))
    return folder / "job"


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory, data: Path) -> list[float]:
    """With nothing of Slurm: what docker/cluster gets."""
    return losses_on_one_machine(tmp_path_factory.mktemp("one_machine"), data)
