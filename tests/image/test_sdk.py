# SPDX-License-Identifier: Apache-2.0
"""The SageMaker SDKs run training jobs on the image, in local mode, with moto as the cloud."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

sys.path.insert(0, str(ROOT / "ci"))

from pairs import uv

HERE = Path(__file__).parent / "sdk"


def environment_of(version: str) -> Path:
    """Python of an environment that holds the SDK, made under build/ at the first use."""
    wanted = (HERE / f"{version}.txt").read_text()
    folder = ROOT / "build" / "sdk" / version
    stamp = folder / "requirements.txt"
    python = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            uv("venv", "--quiet", "--python", sys.executable, folder)
            uv("pip", "install", "--quiet", "--python", python, "-r", HERE / f"{version}.txt")
        except SystemExit as failed:
            pytest.skip(f"SDK {version} cannot be installed: {failed}")
        stamp.write_text(wanted)
    return python


@pytest.fixture(autouse=True)
def tidy(docker: Docker, tmp_path: Path) -> Iterator[None]:
    """The SDKs leave their containers behind."""
    yield
    folder = "com.docker.compose.project.working_dir"
    form = '{{.ID}} {{.Label "' + folder + '"}}'
    listed = docker("ps", "--all", "--filter", f"label={folder}", "--format", form).stdout
    for line in listed.splitlines():
        container, _, place = line.partition(" ")
        if place.startswith(str(tmp_path)):
            docker("rm", "--force", "--volumes", container)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    digits = tmp_path / "digits"
    digits.mkdir()
    sklearn = next((ROOT / ".venv/lib").glob("python3*/site-packages/sklearn/datasets/data"))
    shutil.copy(sklearn / "digits.csv.gz", digits)
    return digits


def run_job(version: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("docker-compose"):
        pytest.skip("docker-compose is not installed")
    python = environment_of(version)
    found = subprocess.run([ROOT / "ci/engine", "env"], capture_output=True, text=True, check=True)
    name, _, value = found.stdout.strip().partition("=")
    # The SDKs call `docker`: the engine's own client has to come first.
    path = f"/usr/bin:{os.environ['PATH']}"
    return subprocess.run(
        [python, HERE / f"{version}_job.py", *map(str, words)],
        env=os.environ | {name: value, "PATH": path},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.mark.cluster
@pytest.mark.parametrize("hosts", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_sdk_v2_trains_the_digits(
    docker: Docker, image: str, data: Path, tmp_path: Path, hosts: str
) -> None:
    done = run_job("v2", image, hosts, "examples/digits", data, tmp_path / "out")

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "test accuracy" in done.stdout + done.stderr
    assert "members ['model.pt']" in done.stdout


@pytest.mark.long
def test_sdk_v3_trains_the_digits(docker: Docker, image: str, data: Path, tmp_path: Path) -> None:
    done = run_job("v3", image, "examples/digits", data, tmp_path / "out")

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "test accuracy" in done.stdout + done.stderr
    assert "model/model.pt" in done.stdout
