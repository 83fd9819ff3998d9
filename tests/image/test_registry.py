# SPDX-License-Identifier: Apache-2.0
"""ci/push against a registry on loopback: push, pull by digest, run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker
from tests.image.registry import Registry, running_registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


def push(
    *words: str, timeout: float = 900, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "ci/push"), *words],
        env=environment,
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


@dataclass(frozen=True)
class Signer:
    """A keyring with one secret key, and a file with its public half."""

    home: Path
    name: str

    @property
    def public(self) -> Path:
        return self.home / "public.asc"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"GNUPGHOME": str(self.home)}


def new_signer(home: Path, name: str) -> Signer:
    home.mkdir(mode=0o700)
    signer = Signer(home, name)
    gpg = ("gpg", "--batch", "--quiet")
    for words in (
        ("--passphrase", "", "--quick-generate-key", name, "ed25519", "sign"),
        ("--armor", "--output", str(signer.public), "--export", name),
    ):
        subprocess.run([*gpg, *words], env=signer.environment, check=True)
    return signer


@pytest.fixture
def new_key(tmp_path: Path) -> Iterator[Callable[[str], Signer]]:
    for program in ("skopeo", "gpg"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    with contextlib.ExitStack() as undo:

        def make(name: str) -> Signer:
            # The agent's socket lies there, and its path is bounded.
            home = Path(undo.enter_context(tempfile.TemporaryDirectory())) / "g"
            signer = new_signer(home, name)
            # It says that it ends, and removes its sockets while the folder is removed.
            kill = ["gpgconf", "--kill", "all"]
            undo.callback(subprocess.run, kill, env=signer.environment, check=False)
            return signer

        yield make


@dataclass(frozen=True)
class Signed:
    image: str  # REGISTRY/NAME@sha256:DIGEST
    signer: Signer
    file: Path  # with the signature

    @property
    def place(self) -> Path:
        return self.file.parents[2]

    def verify(self, public: Path, image: str = "") -> subprocess.CompletedProcess[str]:
        words = ("--signatures", str(self.place), image or self.image)
        return push("--verify", str(public), *words)


@pytest.fixture
def signed(
    docker: Docker,
    registry: Registry,
    small_image: str,
    new_key: Callable[[str], Signer],
    tmp_path: Path,
) -> Iterator[Signed]:
    signer = new_key("release@example.com")
    target = f"{registry.address}/team/signed:one"
    pushed = push(
        "--image", small_image, "--sign", signer.name, target, environment=signer.environment
    )
    assert pushed.returncode == 0, pushed.stderr
    image = pushed.stdout.strip()
    folder = image.partition("/")[2].replace("@sha256:", "@sha256=")
    (tmp_path / "signatures/team").mkdir(parents=True)
    shutil.move(ROOT / "build/image/signatures" / folder, tmp_path / "signatures" / folder)
    yield Signed(image, signer, tmp_path / "signatures" / folder / "signature-1")
    docker("rmi", "--force", target)


def test_a_signed_image_is_verified_by_its_key_alone(
    signed: Signed, new_key: Callable[[str], Signer]
) -> None:
    stranger = new_key("stranger@example.com")

    verified = signed.verify(signed.signer.public)
    refused = signed.verify(stranger.public)

    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.strip() == signed.image
    assert refused.returncode == 1
    assert f"no key of {stranger.public} has signed {signed.image}" in refused.stderr


def another_image(docker: Docker, signed: Signed, small_image: str, tmp_path: Path) -> str:
    """What somebody who may write to the registry puts in the image's place."""
    name, target = f"{small_image}-other", signed.image.partition("@")[0] + ":one"
    (tmp_path / "Dockerfile").write_text(f"FROM {small_image}\nLABEL another=1\n")
    built = docker("build", "--quiet", "--tag", name, tmp_path)
    assert built.returncode == 0, built.stderr
    pushed = push("--image", name, target)
    docker("rmi", "--force", name, target)
    assert pushed.returncode == 0, pushed.stderr
    return pushed.stdout.strip()


def test_another_image_is_refused_without_a_signature_and_with_that_of_the_true_one(
    docker: Docker, signed: Signed, small_image: str, tmp_path: Path
) -> None:
    other = another_image(docker, signed, small_image, tmp_path)

    unsigned = signed.verify(signed.signer.public, other)
    signed.file.parent.rename(signed.file.parents[1] / f"signed@sha256={other.rpartition(':')[2]}")
    borrowed = signed.verify(signed.signer.public, other)

    assert unsigned.returncode == borrowed.returncode == 1
    assert f"{other} is not signed" in unsigned.stderr
    assert "does not match" in borrowed.stderr


def test_a_signature_that_was_changed_is_refused(signed: Signed) -> None:
    bytes_of_it = bytearray(signed.file.read_bytes())
    bytes_of_it[len(bytes_of_it) // 2] ^= 1
    signed.file.write_bytes(bytes_of_it)

    refused = signed.verify(signed.signer.public)

    assert refused.returncode == 1
    assert refused.stdout == ""


def test_a_manifest_that_was_changed_in_the_registry_is_refused(
    signed: Signed, registry: Registry
) -> None:
    digest = signed.image.rpartition(":")[2]
    blob = registry.folder / f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}/data"
    blob.write_text(blob.read_text().replace('"size": ', '"size":  ', 1))

    refused = signed.verify(signed.signer.public)

    assert refused.returncode == 1
    assert "does not give out" in refused.stderr or "does not match" in refused.stderr


@pytest.mark.parametrize(("missing", "package"), [("skopeo", "skopeo"), ("gpg", "gnupg")])
def test_a_missing_tool_is_named(tmp_path: Path, missing: str, package: str) -> None:
    for path in Path("/usr/bin").iterdir():
        if path.name != missing:
            (tmp_path / path.name).symlink_to(path)

    refused = push("--sign", "me", "127.0.0.1:1/x", environment={"PATH": str(tmp_path)})

    assert refused.returncode == 1
    assert f"there is no {missing}" in refused.stderr
    assert f"apt-get install {package}" in refused.stderr


def test_a_key_that_gpg_does_not_have_is_named(new_key: Callable[[str], Signer]) -> None:
    environment = new_key("release@example.com").environment

    refused = push("--sign", "nobody@example.com", "127.0.0.1:1/x", environment=environment)

    assert refused.returncode == 1
    assert 'gpg has no secret key "nobody@example.com"' in refused.stderr


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
