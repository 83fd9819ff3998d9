# SPDX-License-Identifier: Apache-2.0
"""A Docker engine and the image under test: smp-train:dev, or what SMP_TEST_IMAGE names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker
from tests.image.jobs import MakeTree

# Packages that a requirements.txt would have `train` install; a test's containers see no index.
EXTENDED = """\
FROM {image}
COPY packages /opt/venv/lib/python3.11/site-packages
"""


@pytest.fixture(scope="session")
def docker() -> Docker:
    """Calls the docker client with an engine that answers; skips where there is none."""
    found = subprocess.run([ROOT / "ci/engine", "env"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"no Docker engine: {found.stderr.strip()}")
    name, _, value = found.stdout.strip().partition("=")
    debian = Path("/usr/bin/docker")
    program = str(debian) if debian.exists() else shutil.which("docker") or "docker"
    environment = os.environ | {name: value, "DOCKER_BUILDKIT": "1"}

    def call(*words: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *map(str, words)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call


@pytest.fixture(scope="session")
def image(docker: Docker) -> str:
    name = os.environ.get("SMP_TEST_IMAGE", "smp-train:dev")
    if docker("image", "inspect", name).returncode != 0:
        pytest.skip(f"there is no image {name}; ci/image builds it")
    return name


@pytest.fixture(scope="session")
def slim(image: str) -> bool:
    """True if the image is one without torch.compile: by its name, for what it lacks is tested."""
    return "slim" in image


@pytest.fixture(scope="session")
def base(docker: Docker, image: str) -> str:
    """The base that the image was built from, so that its first stages are in the cache."""
    label = '{{index .Config.Labels "org.opencontainers.image.base.name"}}'
    name = docker("image", "inspect", "--format", label, image).stdout.strip()
    if docker("image", "inspect", name).returncode != 0:
        pytest.skip(f"the engine has no {name or 'base image'} to build a stage from")
    return name


@pytest.fixture
def machine_secrets(tmp_path: Path) -> list[str]:
    """Options of `docker build`, as ci/image gives them: should the cache have lost a stage."""
    folder = tmp_path / "machine_secrets"
    folder.mkdir()
    script = [sys.executable, str(ROOT / "ci/build_secrets.py"), str(folder)]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture
def make_tree(docker: Docker, image: str, tmp_path: Path) -> MakeTree:
    """Writes a job's tree, with the image's own launcher."""

    def make(script: str, *options: str) -> Path:
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "script.py").write_text(script)
        words = [
            "--make-tree",
            "/job/opt_ml",
            "--copy",
            "--code",
            "/job/source",
            "--program",
            "script.py",
        ]
        mount = f"{tmp_path}:/job"
        made = docker("run", "--rm", "--volume", mount, image, *words, *options)
        assert made.returncode == 0, made.stderr
        return tmp_path / "opt_ml"

    return make


@pytest.fixture
def container_name(docker: Docker) -> Iterator[str]:
    """A name of its own for a container, which is removed whatever happens."""
    name = f"smp-test-{uuid.uuid4().hex[:12]}"
    yield name
    docker("rm", "--force", "--volumes", name)


@pytest.fixture
def image_with(docker: Docker, image: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Makes an image with more packages, of the versions that this environment has."""
    made: list[str] = []

    def make(*packages: str) -> str:
        folder = tmp_path / f"extended{len(made)}"
        wanted = [f"{name}=={version(name)}" for name in (*packages, "numpy")]
        install = [sys.executable, "-m", "pip", "install", "--quiet"]
        subprocess.run(
            [*install, "--target", folder / "packages", *wanted], check=True, timeout=600
        )
        (folder / "Dockerfile").write_text(EXTENDED.format(image=image))
        made.append(f"smp-test-{'-'.join(packages)}:{uuid.uuid4().hex[:12]}")
        built = docker("build", "--quiet", "--tag", made[-1], folder)
        assert built.returncode == 0, built.stderr
        return made[-1]

    yield make
    for name in made:
        docker("rmi", "--force", name)
