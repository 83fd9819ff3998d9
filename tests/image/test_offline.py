# SPDX-License-Identifier: Apache-2.0
"""A build without any network, from what ci/vendor fetched."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

VENDOR = ROOT / "docker/vendor"


def call(*words: str | Path, timeout: float = 2700) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.long
def test_the_image_is_built_and_runs_without_network(docker: Docker) -> None:
    if not (VENDOR / "wheels").is_dir():
        fetched = call(ROOT / "ci/vendor")
        assert fetched.returncode == 0, fetched.stderr[-3000:]
    tag = f"smp-test-offline:{uuid.uuid4().hex[:12]}"

    # The last --network counts: no step of the build sees an interface.
    built = call(ROOT / "ci/image", "--offline", "--tag", tag, "--network=none")

    assert built.returncode == 0, built.stderr[-3000:]
    ran = docker("run", "--rm", "--network", "none", tag, "python", "-c", "import torch")
    docker("rmi", "--force", tag)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.long
def test_an_empty_vendor_folder_is_named(docker: Docker, base: str, tmp_path: Path) -> None:
    for name in ("Dockerfile", ".dockerignore"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(ROOT / "docker", tmp_path / "docker", ignore=shutil.ignore_patterns("vendor"))
    (tmp_path / "docker/vendor").mkdir()
    arguments = ("--build-arg", "OFFLINE=1", "--build-arg", f"BASE_IMAGE={base}")

    done = docker("build", "--network=none", "--target", "os", *arguments, tmp_path)

    assert done.returncode != 0
    assert "OFFLINE=1, but docker/vendor is empty: run ci/vendor" in done.stderr
