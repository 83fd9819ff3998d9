# SPDX-License-Identifier: Apache-2.0
"""ci/image compares the base image with docker/locks/base.lock."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, VENDORED, Docker

NO_DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture
def base(docker: Docker, tmp_path: Path) -> Iterator[str]:
    """An image of one layer, as ci/base_image.sh imports one."""
    name = f"smp-test-base:{uuid.uuid4().hex[:12]}"
    with tarfile.open(tmp_path / "root.tar", "w") as root:
        entry = tarfile.TarInfo("etc/os-release")
        entry.size = len(text := b"ID=none\n")
        root.addfile(entry, io.BytesIO(text))
    made = docker("import", tmp_path / "root.tar", name)
    assert made.returncode == 0, made.stderr
    yield name
    docker("rmi", "--force", name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """As much of the source as ci/image looks at before it builds."""
    folder = tmp_path / "source"
    for name in ("ci", "docker"):
        shutil.copytree(ROOT / name, folder / name, ignore=VENDORED)
    for name in ("Dockerfile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(source: Path, base: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ends where the build would begin: there is no such stage."""
    words = ("--target", "no-stage", "--build-arg", f"BASE_IMAGE={base}", *options)
    return subprocess.run(
        [source / "ci/image", *words], capture_output=True, text=True, timeout=300, check=False
    )


def lock(source: Path, base: str, digest: str) -> None:
    with (source / "docker/locks/base.lock").open("a") as file:
        file.write(f"{base} {digest}\n")


def layer_of(docker: Docker, base: str) -> str:
    found = docker("image", "inspect", "--format", "{{index .RootFS.Layers 0}}", base)
    return found.stdout.strip()


def test_a_base_as_locked_is_taken_without_a_word(docker: Docker, base: str, source: Path) -> None:
    lock(source, base, layer_of(docker, base))

    done = build(source, base, "--build-arg", "STRICT_LOCK=1")

    assert "base.lock" not in done.stderr
    assert "building smp-train:stage-no-stage" in done.stderr


def test_another_one_is_named(base: str, source: Path) -> None:
    lock(source, base, NO_DIGEST)

    done = build(source, base)

    assert f"docker/locks/base.lock names {NO_DIGEST} for {base}" in done.stderr
    assert "building smp-train:stage-no-stage" in done.stderr


@pytest.mark.parametrize("digest", [NO_DIGEST, ""])
def test_a_release_refuses_it(docker: Docker, base: str, source: Path, digest: str) -> None:
    if digest:
        lock(source, base, digest)

    done = build(source, base, "--build-arg", "STRICT_LOCK=1")

    assert done.returncode == 1
    assert f"base.lock names {digest or 'no digest'} for {base}" in done.stderr
    assert layer_of(docker, base) in done.stderr
    assert "building" not in done.stderr
