# SPDX-License-Identifier: Apache-2.0
"""The EFA stage with a made-up installer: right sum, wrong sum, missing members."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

INSTALLER = """\
#!/bin/bash
set -euo pipefail
[[ "$*" == "--yes --skip-kmod --skip-limit-conf --no-verify" ]] || exit 9
mkdir --parents /opt/amazon/efa/{lib,bin,share/doc} /opt/amazon/ofi-nccl/lib
echo fabric >/opt/amazon/efa/lib/libfabric.so.1
echo plugin >/opt/amazon/ofi-nccl/lib/libnccl-net.so
echo manual >/opt/amazon/efa/share/doc/manual
echo verbs >/usr/lib/libibverbs.so.99
"""
WITHOUT_PLUGIN = INSTALLER.replace("/opt/amazon/ofi-nccl/lib", "/opt/amazon/other")


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """What the stage reads of the source, with room for an installer of our own."""
    folder = tmp_path / "context"
    shutil.copytree(ROOT / "docker", folder / "docker")
    shutil.copy(ROOT / "Dockerfile", folder)
    shutil.copy(ROOT / ".dockerignore", folder)
    return folder


@pytest.fixture
def tag(docker: Docker) -> Iterator[str]:
    name = f"smp-test-efa:{uuid.uuid4().hex[:12]}"
    yield name
    docker("rmi", "--force", name)


def pack(context: Path, script: str, name: str = "aws-efa-installer/efa_installer.sh") -> str:
    """Puts an archive where the stage looks for it; its sum."""
    file = context / "efa_installer.sh"
    file.write_text(script)
    file.chmod(0o755)
    archive = context / "docker/efa/aws-efa-installer.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(file, arcname=name)
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def build(
    docker: Docker, base: str, context: Path, installer: str, digest: str, *words: str
) -> subprocess.CompletedProcess[str]:
    arguments = {"BASE_IMAGE": base, "EFA_INSTALLER": installer, "EFA_SHA256": digest}
    options = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
    # Should the cache have lost the stage before, it is built as ci/image does.
    secrets = context.parent / "secrets"
    secrets.mkdir(exist_ok=True)
    script = [sys.executable, str(ROOT / "ci/build_secrets.py"), str(secrets)]
    options += subprocess.run(script, capture_output=True, text=True, check=True).stdout.split()
    stage = ("build", "--network=host", "--target", "efa")
    return docker(*stage, *options, *words, context, timeout=600)


@pytest.fixture
def base(docker: Docker, image: str) -> str:
    """The base that the image was built from, so that the stages before are in the cache."""
    label = '{{index .Config.Labels "org.opencontainers.image.base.name"}}'
    name = docker("image", "inspect", "--format", label, image).stdout.strip()
    if docker("image", "inspect", name).returncode != 0:
        pytest.skip(f"the engine has no {name or 'base image'} to build the stage from")
    return name


def test_the_right_sum_installs_both_prefixes_and_their_own_verbs(
    docker: Docker, base: str, context: Path, tag: str
) -> None:
    digest = pack(context, INSTALLER)

    built = build(docker, base, context, "1", digest, "--tag", tag)

    assert built.returncode == 0, built.stderr[-3000:]
    found = docker("run", "--rm", "--network", "none", tag, "find", "/out", "-type", "f").stdout
    assert sorted(found.split()) == [
        "/out/opt/amazon/efa/installer.sha256",
        "/out/opt/amazon/efa/lib/libfabric.so.1",
        "/out/opt/amazon/efa/lib/libibverbs.so.99",
        "/out/opt/amazon/ofi-nccl/lib/libnccl-net.so",
    ]


def test_the_lock_names_an_installer_with_its_sum(
    docker: Docker, base: str, context: Path, tag: str
) -> None:
    digest = pack(context, INSTALLER)
    efa = context / "docker/efa"
    (efa / "aws-efa-installer.tar.gz").rename(efa / "elsewhere.tar.gz")
    lock = context / "docker/locks/artifacts.lock"
    lock.write_text(f"aws-efa-installer {digest} file:///efa/elsewhere.tar.gz\n")

    built = build(docker, base, context, "1", "", "--tag", tag)

    assert built.returncode == 0, built.stderr[-3000:]
    sum_file = "/out/opt/amazon/efa/installer.sha256"
    found = docker("run", "--rm", "--network", "none", tag, "cat", sum_file)
    assert found.stdout.strip() == digest


@pytest.mark.parametrize(
    ("script", "member", "digest", "complaint"),
    [
        (INSTALLER, "aws-efa-installer/efa_installer.sh", "0" * 64, "nothing was unpacked"),
        (INSTALLER, "aws-efa-installer/efa_installer.sh", "", "has to be the 64 hexadecimal"),
        (INSTALLER, "another/name.sh", "right", "has no aws-efa-installer/efa_installer.sh"),
        (WITHOUT_PLUGIN, "aws-efa-installer/efa_installer.sh", "right", "left no /opt/amazon/ofi"),
        ("#!/bin/sh\nexit 3\n", "aws-efa-installer/efa_installer.sh", "right", "installer failed"),
    ],
    ids=["wrong sum", "no sum", "no installer inside", "no plugin", "installer fails"],
)
def test_what_is_wrong_fails_the_build(
    docker: Docker,
    base: str,
    context: Path,
    script: str,
    member: str,
    digest: str,
    complaint: str,
) -> None:
    real = pack(context, script, member)

    built = build(docker, base, context, "1", real if digest == "right" else digest)

    assert built.returncode != 0
    assert complaint in built.stderr, built.stderr[-3000:]


@pytest.mark.parametrize(
    ("installer", "complaint"),
    [
        ("1", "is not there, nor a line in docker/locks/artifacts.lock; put AWS's"),
        ("yes", "neither 0, 1 nor a URL"),
        ("file:///nowhere.tar.gz", "cannot fetch"),
    ],
)
def test_an_installer_that_cannot_be_had_fails_the_build(
    docker: Docker, base: str, context: Path, installer: str, complaint: str
) -> None:
    built = build(docker, base, context, installer, "0" * 64)

    assert built.returncode != 0
    assert complaint in built.stderr, built.stderr[-3000:]
