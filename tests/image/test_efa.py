# SPDX-License-Identifier: Apache-2.0
"""The EFA stage with a made-up installer: right sum, wrong sum, missing members."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, VENDORED, Docker

Build = Callable[..., "subprocess.CompletedProcess[str]"]

INSTALLER = """\
#!/bin/bash
set -euo pipefail
[[ "$*" == "--yes --skip-kmod --skip-limit-conf --no-verify" ]] || exit 9
debian=$(dirname "$(readlink --canonicalize /usr/lib/*/libibverbs.so.1)")
mkdir --parents /opt/amazon/efa/{lib,bin,share/doc} /opt/amazon/ofi-nccl/lib
cp --dereference "$debian/libfabric.so.1" /opt/amazon/efa/lib/
echo plugin >/opt/amazon/ofi-nccl/lib/libnccl-net.so
echo manual >/opt/amazon/efa/share/doc/manual
# As dpkg does it: the file has the time that it has in its package.
cp --dereference "$debian/libibverbs.so.1" "$debian/libibverbs.so.1.99"
touch --date=2020-01-01 "$debian/libibverbs.so.1.99"
ln --symbolic --force libibverbs.so.1.99 "$debian/libibverbs.so.1"
"""
# The image as far as the loader is concerned: Debian's libraries, the stage's, and the layout.
LOADED = """
FROM os AS loaded
COPY --from=efa /out/ /
RUN --mount=type=bind,source=docker/build/root_layout.sh,target=/build/root_layout.sh \\
    /build/root_layout.sh
"""
LOADS = "import ctypes; ctypes.CDLL('libfabric.so.1'); print(open('/proc/self/maps').read())"
WITHOUT_PLUGIN = INSTALLER.replace("/opt/amazon/ofi-nccl/lib", "/opt/amazon/other")


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """Files of the source that the stage reads, with room for an installer of our own."""
    folder = tmp_path / "context"
    shutil.copytree(ROOT / "docker", folder / "docker", ignore=VENDORED)
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


@pytest.fixture
def build(docker: Docker, base: str, context: Path, machine_secrets: list[str]) -> Build:
    """Builds the stage, or the target among the words."""

    def run(installer: str, digest: str, *words: str) -> subprocess.CompletedProcess[str]:
        arguments = {"BASE_IMAGE": base, "EFA_INSTALLER": installer, "EFA_SHA256": digest}
        options = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
        stage = ("build", "--network=host", "--target", "efa")
        return docker(*stage, *machine_secrets, *options, *words, context, timeout=600)

    return run


def test_the_right_sum_installs_both_prefixes_and_their_own_verbs(
    docker: Docker, build: Build, context: Path, tag: str
) -> None:
    digest = pack(context, INSTALLER)

    built = build("1", digest, "--tag", tag)

    assert built.returncode == 0, built.stderr[-3000:]
    look = ("find", "/out", "!", "-type", "d")
    found = docker("run", "--rm", "--network", "none", tag, *look).stdout
    assert sorted(found.split()) == [
        "/out/etc/ld.so.conf.d/000_efa.conf",
        "/out/opt/amazon/efa/installer.sha256",
        "/out/opt/amazon/efa/lib/libfabric.so.1",
        "/out/opt/amazon/efa/lib/libibverbs.so.1",
        "/out/opt/amazon/efa/lib/libibverbs.so.1.99",
        "/out/opt/amazon/ofi-nccl/lib/libnccl-net.so",
    ]


def test_every_process_loads_the_installer_s_libraries_and_no_others(
    docker: Docker, build: Build, context: Path, tag: str
) -> None:
    digest = pack(context, INSTALLER)
    with (context / "Dockerfile").open("a") as dockerfile:
        dockerfile.write(LOADED)

    built = build("1", digest, "--target", "loaded", "--tag", tag)

    assert built.returncode == 0, built.stderr[-3000:]
    loaded = docker("run", "--rm", "--network", "none", tag, "python3.11", "-c", LOADS)
    assert loaded.returncode == 0, loaded.stderr
    names = ("libfabric", "libibverbs")
    lines = [line.split()[-1] for line in loaded.stdout.splitlines() if "/lib" in line]
    found = {path for path in lines if Path(path).name.startswith(names)}
    assert found == {
        "/opt/amazon/efa/lib/libfabric.so.1",
        "/opt/amazon/efa/lib/libibverbs.so.1.99",
    }


def test_the_lock_names_an_installer_with_its_sum(
    docker: Docker, build: Build, context: Path, tag: str
) -> None:
    digest = pack(context, INSTALLER)
    efa = context / "docker/efa"
    (efa / "aws-efa-installer.tar.gz").rename(efa / "elsewhere.tar.gz")
    lock = context / "docker/locks/artifacts.lock"
    lock.write_text(f"aws-efa-installer {digest} file:///efa/elsewhere.tar.gz\n")

    built = build("1", "", "--tag", tag)

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
    build: Build, context: Path, script: str, member: str, digest: str, complaint: str
) -> None:
    real = pack(context, script, member)

    built = build("1", real if digest == "right" else digest)

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
    build: Build, installer: str, complaint: str
) -> None:
    built = build(installer, "0" * 64)

    assert built.returncode != 0
    assert complaint in built.stderr, built.stderr[-3000:]
