# SPDX-License-Identifier: Apache-2.0
"""examples/extend_cpp: a program that the stage `cpp` compiles, and the image that runs it."""

from __future__ import annotations

import gzip
import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.digits_job import SETTINGS, copy_data
from tests.image.engine import ROOT, Docker, train

PROGRAM = "/usr/local/bin/digits"


@pytest.fixture(scope="module")
def trainer(docker: Docker, image: str) -> Iterator[str]:
    stage = f"smp-test-cpp:{uuid.uuid4().hex[:12]}"
    built = subprocess.run(
        [ROOT / "ci/image", "--compiled", "--target", "cpp", "--tag", stage],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]
    name = f"smp-test-trainer:{uuid.uuid4().hex[:12]}"
    example = ROOT / "examples"
    made = docker(
        *("build", "--network", "none", "--tag", name),
        *("--build-arg", f"IMAGE={image}", "--build-arg", f"CPP={stage}"),
        *("--file", example / "extend_cpp/Dockerfile", example / "digits_cpp"),
        timeout=600,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    yield name
    docker("rmi", "--force", name, stage)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = copy_data(tmp_path_factory.mktemp("packed")) / "digits.csv.gz"
    folder = tmp_path_factory.mktemp("digits")
    folder.joinpath("digits.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def losses(image: str, data: Path, tree: Path, hosts: int) -> list[str]:
    settings = json.loads(SETTINGS) | {"deterministic_server": True}
    options = ("--program", PROGRAM, "--channel", f"train={data}")
    train(image, tree, settings, {"epochs": 2}, *options, hosts=hosts, processes=4 // hosts)
    host = tree / "tree" if hosts == 1 else tree / "tree/algo-1"
    return (host / "output/data/curve.txt").read_text().split()


@pytest.mark.cluster
def test_two_containers_learn_what_one_does(trainer: str, data: Path, tmp_path: Path) -> None:
    one = losses(trainer, data, tmp_path / "one", 1)
    two = losses(trainer, data, tmp_path / "two", 2)

    assert len(one) == 2 * 22
    assert float(one[-1]) < 0.8 * float(one[0])
    assert two == one


@pytest.mark.cluster
def test_the_program_has_no_python_in_it(docker: Docker, trainer: str) -> None:
    linked = docker("run", "--rm", "--entrypoint", "ldd", trainer, PROGRAM)

    assert linked.returncode == 0, linked.stderr
    assert "libsmp_runtime.so.1" in linked.stdout
    assert "not found" not in linked.stdout
    assert "libpython" not in linked.stdout
