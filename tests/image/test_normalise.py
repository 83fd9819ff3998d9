# SPDX-License-Identifier: Apache-2.0
"""Equal sources give equal images: ci/normalise, and two builds without any cache."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

LABELS = 'LABEL org.opencontainers.image.created="2026-01-02T03:04:05Z"\n'
STEPS = """\
FROM {image}
COPY data /data
RUN mkdir /made && echo one >/made/file && ln -s /made/file /made/link \\
    && ln /made/file /made/hard && chmod 4755 /made/file && chown --no-dereference 7:8 /made/link
RUN rm /data/old
"""


def normalise(*words: str) -> str:
    done = subprocess.run(
        [str(ROOT / "ci/normalise"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def names(docker: Docker) -> Iterator[list[str]]:
    made = [f"smp-test-normal:{uuid.uuid4().hex[:12]}" for _ in range(3)]
    yield made
    docker("rmi", "--force", *made)


def test_two_builds_at_different_times_become_one_image(
    docker: Docker, base: str, names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(STEPS.format(image=base) + LABELS)
    (tmp_path / "data").mkdir()
    for name in ("old", "new"):
        (tmp_path / "data" / name).write_text(name)
    build = ("build", "--quiet", "--network=host", "--no-cache", "--tag")
    for name in names[:2]:
        built = docker(*build, name, tmp_path)
        assert built.returncode == 0, built.stderr
        time.sleep(1.1)  # the clock of file times counts seconds
        (tmp_path / "data" / "new").touch()
    (tmp_path / "data" / "new").write_text("other")
    assert docker(*build, names[2], tmp_path).returncode == 0

    ids = [normalise(name) for name in names]

    plain = {docker("image", "inspect", "--format", "{{.Id}}", name).stdout for name in names[:2]}
    assert len(plain) == 2, "the engine dates by itself; normalising is needless here"
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]


def test_what_is_loaded_has_that_id_and_the_same_files(
    docker: Docker, base: str, names: list[str], tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(STEPS.format(image=base) + LABELS)
    (tmp_path / "data").mkdir()
    for name in ("old", "new"):
        (tmp_path / "data" / name).write_text(name)
    built = docker("build", "--quiet", "--network=host", "--tag", names[0], tmp_path)
    assert built.returncode == 0, built.stderr
    shell = ("run", "--rm", "--network", "none", "--entrypoint", "/bin/bash", names[0], "-c")
    look = "find /made /data -printf '%p %y %m %U:%G %n %l %s\\n' | sort; md5sum /usr/bin/bash"
    before = docker(*shell, look).stdout

    identity = normalise("--load", names[0])

    found = docker("image", "inspect", "--format", "{{.Id}} {{.Created}}", names[0]).stdout.split()
    assert found == [identity, "2026-01-02T03:04:05Z"]
    assert "/made/file f 4755" in before
    assert docker(*shell, look).stdout == before
    times = docker(*shell, "stat --format %Y /made/file /data/new").stdout.split()
    assert set(times) == {"1767323045"}


DATED = """\
import pathlib, sys
for file in pathlib.Path(sys.prefix).rglob("*.pyc"):
    if file.read_bytes()[4:8] != bytes([1, 0, 0, 0]):
        print(file)
"""


def test_bytecode_says_nothing_of_its_time(docker: Docker, image: str) -> None:
    found = docker("run", "--rm", "--network", "none", image, "python", "-c", DATED)

    assert (found.returncode, found.stdout) == (0, ""), found.stderr


@pytest.mark.long
def test_two_clean_builds_give_the_same_image(docker: Docker, names: list[str]) -> None:
    for name in names[:2]:
        command = [ROOT / "ci/image", "--no-cache", "--tag", name]
        built = subprocess.run(command, capture_output=True, text=True, timeout=2700, check=False)
        assert built.returncode == 0, built.stderr[-3000:]

    folders = [ROOT / "build" / "normal" / str(number) for number in range(2)]
    ids = [
        normalise(name, "--list", str(folder)) for name, folder in zip(names, folders, strict=False)
    ]

    compare = ["diff", "--recursive", "--unified=0", *map(str, folders)]
    different = subprocess.run(compare, capture_output=True, text=True, check=False).stdout
    assert ids[0] == ids[1], different[:5000]
