# SPDX-License-Identifier: Apache-2.0
"""ci/push against a registry on loopback: push, pull by digest, run."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker
from tests.image.registry import Registry, running_registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


def push(*words: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "ci/push"), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def small_image(docker: Docker, tmp_path: Path) -> Iterator[str]:
    """One static program, so that the push takes no time."""
    name = f"smp-test-small:{uuid.uuid4().hex[:12]}"
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to make an image from")
    (tmp_path / "hello.cc").write_text('#include <cstdio>\nint main() { puts("hello"); }\n')
    program = tmp_path / "hello"
    subprocess.run([compiler, "-static", "-o", program, tmp_path / "hello.cc"], check=True)
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY hello /\nENTRYPOINT ["/hello"]\n')
    built = docker("build", "--quiet", "--tag", name, tmp_path)
    assert built.returncode == 0, built.stderr
    yield name
    docker("rmi", "--force", name)


@pytest.mark.parametrize("how", [[], ["--skopeo"]], ids=["docker", "skopeo"])
def test_what_was_pushed_is_pulled_by_its_digest_and_runs(
    docker: Docker, registry: Registry, small_image: str, how: list[str]
) -> None:
    if how and shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    target = f"{registry.address}/team/small{len(how)}"

    pushed = push("--image", small_image, *how, f"{target}:one")

    assert pushed.returncode == 0, pushed.stderr
    by_digest = pushed.stdout.strip()
    assert by_digest.startswith(f"{target}@sha256:")
    if how:
        assert registry.layer_bytes("team/small1", "one")
        return  # this engine may be too old for zstd
    docker("rmi", "--force", small_image, f"{target}:one")
    ran = docker("run", "--rm", "--network", "none", by_digest)
    assert ran.stdout == "hello\n", ran.stderr
    docker("rmi", "--force", by_digest)


@pytest.mark.parametrize("target", ["", "smp-train", "team/smp-train:dev"])
def test_a_name_without_a_registry_is_refused(docker: Docker, target: str) -> None:
    refused = push(target)

    assert refused.returncode == 1
    assert "names no registry" in refused.stderr


def test_an_image_that_is_not_there_is_named(docker: Docker) -> None:
    refused = push("--image", "smp-test:nowhere", "127.0.0.1:1/x")

    assert refused.returncode == 1
    assert "there is no image smp-test:nowhere" in refused.stderr


@pytest.mark.long
def test_after_a_source_change_only_our_layers_are_pushed(
    docker: Docker, image: str, registry: Registry, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, files):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    changed = source / "smp_runtime/python/smdistributed/__init__.py"
    changed.write_text(changed.read_text() + f"\n# {uuid.uuid4()}\n")
    new = f"smp-test-changed:{uuid.uuid4().hex[:12]}"
    one, two = (f"{registry.address}/smp-train:{tag}" for tag in ("one", "two"))

    before = push("--image", image, one)
    built = subprocess.run(
        [source / "ci/image", "--tag", new],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    after = push("--image", new, two)
    pulled = docker("run", "--rm", after.stdout.strip(), "train", "--version")
    docker("rmi", "--force", new, one, two)

    assert before.returncode == built.returncode == after.returncode == 0, built.stderr[-2000:]
    assert pulled.returncode == 0, pulled.stderr
    old = registry.layer_bytes("smp-train", "one")
    sent = {
        digest: size
        for digest, size in registry.layer_bytes("smp-train", "two").items()
        if digest not in old
    }
    assert 1 <= len(sent) <= 2, "the layer of our program, and that of the documents"
    assert sum(sent.values()) < 15e6, sent
