# SPDX-License-Identifier: Apache-2.0
"""One cluster of two nodes for all tests; a job's tree and what its script needs on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import slurm_cluster
from slurm_cluster import ROOT, SlurmCluster

BUILD = ROOT / "build" / "release"
SETTINGS = {"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True}
EPOCHS = 2
MakeTree = Callable[..., Path]


def needs_slurm() -> None:
    reason = slurm_cluster.lacks()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    needs_slurm()
    with SlurmCluster(2) as cluster:
        data = cluster.shared / "digits"
        data.mkdir()
        sklearn = next((ROOT / ".venv/lib").glob("python3*/site-packages/sklearn/datasets/data"))
        shutil.copy(sklearn / "digits.csv.gz", data)
        yield cluster


@pytest.fixture(scope="session")
def variables(cluster: SlurmCluster) -> dict[str, str]:
    """Of jobs that start a script."""
    return {
        "PATH": f"{BUILD}/bin:{ROOT}/.venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": f"{BUILD}/python",
        "SM_CHANNEL_TRAIN": str(cluster.shared / "digits"),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def folder(cluster: SlurmCluster, request: pytest.FixtureRequest) -> Path:
    """Of one test, on the file system that the nodes share."""
    path = cluster.shared / request.node.name.replace("/", "_")
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    return path


@pytest.fixture
def make_tree(cluster: SlurmCluster, folder: Path) -> MakeTree:
    """make_tree(SCRIPT or its folder, *OPTIONS): a tree for all hosts that any user may use."""

    def make(code: str | Path, *options: str, processes: int = 2) -> Path:
        if isinstance(code, str):
            (folder / "code").mkdir()
            (folder / "code" / "train.py").write_text(code)
            code = folder / "code"
        words = ["--make-tree", folder / "job", "--cluster", "--copy", "--code", code]
        words += ["--program", "train.py", "--processes", processes, *options]
        command = [BUILD / "bin" / "train", *map(str, words)]
        subprocess.run(command, check=True, capture_output=True, timeout=slurm_cluster.LIMIT)
        for path in (folder / "job").rglob("*"):
            os.chmod(path, 0o777 if path.is_dir() else 0o666)
        (folder / "job").chmod(0o777)
        return folder / "job"

    return make


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> list[float]:
    """Of the same job on one machine, with nothing of Slurm: what docker/cluster gets."""
    folder = tmp_path_factory.mktemp("one_machine")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4"]
    command += ["python", str(ROOT / "examples/digits/train.py"), "--epochs", str(EPOCHS)]
    done = subprocess.run(
        command,
        env={
            "HOME": str(folder),
            "SM_MODEL_DIR": str(folder),
            "SM_HP_MP_PARAMETERS": json.dumps(SETTINGS),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=slurm_cluster.LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return curve(folder)


def curve(folder: Path) -> list[float]:
    """The losses that examples/digits wrote."""
    losses: list[float] = json.loads((folder / "curve.json").read_text())["loss"]
    return losses
