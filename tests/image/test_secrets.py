# SPDX-License-Identifier: Apache-2.0
"""The scripts of the stages use each build secret, and no layer keeps any of it."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker
from tests.image.mirror import WHEEL, Mirror, running_mirror

# The mounts of the Dockerfile's own steps, with caches of their own.
STEPS = """\
FROM {stage}
RUN --mount=type=bind,source=build,target=/build \\
    --mount=type=cache,id=smp-test-apt,target=/var/cache/apt \\
    --mount=type=cache,id=smp-test-apt-lists,target=/var/lib/apt/lists \\
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \\
    --mount=type=secret,id=ca_bundle \\
    /build/apt_install.sh /build/packages.txt
RUN --mount=type=bind,source=build,target=/build \\
    --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \\
    --mount=type=secret,id=netrc \\
    /build/python_fetch.sh /build/python.lock /wheels
"""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    folder = tmp_path / "mirror"
    folder.mkdir()
    with running_mirror(folder) as found:
        yield found


@pytest.fixture
def stage(docker: Docker, base: str, machine_secrets: list[str]) -> Iterator[str]:
    """The stage before the wheels: Debian's packages, and Python that can make a venv."""
    name = f"smp-test-pip:{uuid.uuid4().hex[:12]}"
    options = ("--network=host", "--target", "pip", "--build-arg", f"BASE_IMAGE={base}")
    built = docker("build", "--quiet", *options, *machine_secrets, "--tag", name, ROOT, timeout=600)
    assert built.returncode == 0, built.stderr[-3000:]
    yield name
    docker("rmi", "--force", name)


@pytest.fixture
def tag(docker: Docker) -> Iterator[str]:
    name = f"smp-test-secrets:{uuid.uuid4().hex[:12]}"
    yield name
    docker("rmi", "--force", name)


def marker(secret: str) -> str:
    return f"marker-{secret.replace('_', '-')}"


def written_secrets(folder: Path, mirror: Mirror) -> list[str]:
    """Options of `docker build`; each secret holds its marker, where its use can be seen."""
    sources = f"{mirror.address}/{marker('apt_sources')}"
    index = f"{mirror.address}/{marker('pip_conf')}/simple"
    secrets = {
        "apt_sources": f"Types: deb\nURIs: {sources}\nSuites: ./\nTrusted: yes\n",
        "apt_conf": f'Acquire::https::User-Agent "{marker("apt_conf")}";\n',
        "ca_bundle": f"{marker('ca_bundle')}\n{mirror.certificate.read_text()}",
        "pip_conf": f"[global]\nindex-url = {index}\n",
        "netrc": f"machine 127.0.0.1 login {marker('netrc')} password {marker('netrc')}\n",
    }
    folder.mkdir()
    for name, text in secrets.items():
        (folder / name).write_text(text)
    return [f"--secret=id={name},src={folder / name}" for name in secrets]


def saved_files(archive: Path) -> Iterator[bytes]:
    """Layers, configuration and index of `docker save`, uncompressed."""
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None:
                data = file.read()
                yield gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def test_each_secret_is_used_and_none_is_kept(
    docker: Docker, stage: str, mirror: Mirror, tag: str, tmp_path: Path
) -> None:
    context = tmp_path / "context"
    (context / "build").mkdir(parents=True)
    for name in ("apt_install.sh", "python_fetch.sh"):
        shutil.copy(ROOT / "docker/build" / name, context / "build")
    (context / "build/packages.txt").write_text("# none: what is asked of the mirror counts\n")
    (context / "build/python.lock").write_text(mirror.locked())
    (context / "Dockerfile").write_text(STEPS.format(stage=stage))
    secrets = written_secrets(tmp_path / "secrets", mirror)

    built = docker("build", "--network=host", "--no-cache", *secrets, "--tag", tag, context)

    assert built.returncode == 0, built.stderr[-3000:]
    # All of it came over TLS that nothing but the CA bundle makes trustworthy.
    asked = {(request.path, request.agent, request.user) for request in mirror.requests}
    of_apt = [request for request in asked if marker("apt_sources") in request[0]]
    of_pip = [request for request in asked if marker("pip_conf") in request[0]]
    assert {agent for _, agent, _ in of_apt} == {marker("apt_conf")}
    assert {user for _, _, user in of_pip} == {marker("netrc")}
    assert any(path.endswith(WHEEL) for path, _, _ in of_pip)
    archive = tmp_path / "image.tar"
    saved = docker("save", "--output", archive, tag)
    assert saved.returncode == 0, saved.stderr
    history = docker("history", "--no-trunc", tag).stdout
    # The search finds what is there.
    assert "python_fetch.sh" in history
    assert any(WHEEL.encode() in data for data in saved_files(archive))
    words = [marker(name) for name in ("apt_sources", "apt_conf", "ca_bundle", "pip_conf", "netrc")]
    words.append(mirror.certificate.read_text().splitlines()[1])
    for data in saved_files(archive):
        assert not [word for word in words if word.encode() in data]
    assert not [word for word in words if word in history]
