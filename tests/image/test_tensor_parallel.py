# SPDX-License-Identifier: Apache-2.0
"""The example of tensor parallelism on two hosts, and beside one process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

# What a user's requirements.txt would have `train` install; a test's containers see no index.
EXTENDED = """\
FROM {image}
COPY packages /opt/venv/lib/python3.11/site-packages
"""


@pytest.fixture
def with_transformers(docker: Docker, image: str, tmp_path: Path) -> Iterator[str]:
    packages = tmp_path / "extended" / "packages"
    wanted = f"transformers=={version('transformers')}"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, wanted]
    subprocess.run(install, check=True, timeout=300)
    (tmp_path / "extended/Dockerfile").write_text(EXTENDED.format(image=image))
    name = f"smp-test-transformers:{uuid.uuid4().hex[:12]}"
    built = docker("build", "--quiet", "--tag", name, tmp_path / "extended")
    assert built.returncode == 0, built.stderr
    yield name
    docker("rmi", "--force", name)


def losses_of(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+: mean loss (\S+)", output)]


def train(image: str, tree: Path, hosts: int, processes: int, degree: int) -> list[float]:
    settings = {"ddp": True, "tensor_parallel_degree": degree}
    small = {"steps": "30", "length": "24", "width": "32", "batch": "8"}
    hyperparameters = [
        word for name, value in small.items() for word in ("--hyperparameter", f"{name}={value}")
    ]
    done = subprocess.run(
        [
            *(ROOT / "docker/cluster", "run", "--image", image, "--tree", tree),
            *("--hosts", str(hosts), "--processes", str(processes), "--timeout", "300"),
            *("--code", ROOT / "examples/gpt2_tensor_parallel", "--program", "train.py"),
            *("--mp-parameters", json.dumps(settings), *hyperparameters),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    return losses_of(done.stdout)


@pytest.mark.long
def test_gpt2_learns_on_two_hosts_what_one_process_learns(
    with_transformers: str, tmp_path: Path
) -> None:
    split = train(with_transformers, tmp_path / "split", hosts=2, processes=2, degree=2)

    alone = train(with_transformers, tmp_path / "alone", hosts=1, processes=1, degree=1)
    assert len(split) == len(alone) == 30
    assert split == pytest.approx(alone, abs=2e-4)  # 32 bits over thirty steps
    assert sum(split[-5:]) / 5 < split[0] - 1.5, split
