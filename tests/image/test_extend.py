# SPDX-License-Identifier: Apache-2.0
"""Images made from ours, and ours made from other bases."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, VENDORED, Docker

MORE = """\
FROM {image}
ENV PATH="/opt/ml/code:${{PATH}}"
ENV SAGEMAKER_SUBMIT_DIRECTORY /opt/ml/code
COPY cifar10.py /opt/ml/code/cifar10.py
"""


# As in python:3.11-slim-bookworm, which check_base.sh recommends: a Python of its own.
WITH_PYTHON = """\
FROM {base}
RUN touch /usr/local/bin/python3.11 && ln --symbolic python3.11 /usr/local/bin/python
"""
# Stages before and after the wheels, which take minutes, on such a base.
LAYOUT = """
FROM os AS layout
COPY docker/rootfs/ /
RUN --mount=type=bind,source=docker/build/root_layout.sh,target=/build/root_layout.sh \\
    /build/root_layout.sh
"""


@pytest.fixture
def tag(docker: Docker) -> Iterator[str]:
    name = f"smp-test-extended:{uuid.uuid4().hex[:12]}"
    yield name
    docker("rmi", "--force", name)


def cluster_run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "docker/cluster"), "run", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.cluster
def test_the_example_trains_with_the_script_of_the_image(
    docker: Docker, image: str, tag: str, tmp_path: Path
) -> None:
    digits = tmp_path / "digits"
    digits.mkdir()
    sklearn = next((ROOT / ".venv/lib").glob("python3*/site-packages/sklearn/datasets/data"))
    shutil.copy(sklearn / "digits.csv.gz", digits)
    built = docker(
        *("build", "--quiet", "--tag", tag, "--build-arg", f"IMAGE={image}"),
        *("--file", ROOT / "examples/extend/Dockerfile", ROOT / "examples/digits"),
    )
    assert built.returncode == 0, built.stderr

    done = cluster_run(
        *("--hosts", "1", "--processes", "2", "--image", tag, "--program", "train.py"),
        *("--channel", f"train={digits}", "--hyperparameter", "epochs=1"),
        *("--mp-parameters", '{"pipeline_parallel_degree": 2, "microbatches": 2}'),
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "test accuracy" in done.stdout


def test_the_published_pattern_finds_its_script(
    docker: Docker, image: str, tag: str, tmp_path: Path
) -> None:
    (tmp_path / "cifar10.py").write_text("import os\nprint('in', os.getcwd(), __file__)\n")
    (tmp_path / "Dockerfile").write_text(MORE.format(image=image))
    built = docker("build", "--quiet", "--tag", tag, tmp_path)
    assert built.returncode == 0, built.stderr

    # The estimator's entry_point may be the path inside the image.
    done = cluster_run("--hosts", "1", "--image", tag, "--program", "/opt/ml/code/cifar10.py")

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "in /opt/ml/code" in done.stdout


@pytest.mark.parametrize(("family", "version"), [("alpine", "3.20"), ("debian", "13")])
def test_a_base_of_another_family_is_refused_with_what_is_needed(
    tmp_path: Path, family: str, version: str
) -> None:
    (tmp_path / "os-release").write_text(f"ID={family}\nVERSION_ID={version}\n")
    script = ROOT / "docker/build/check_base.sh"
    # The check reads one file; a root where that file differs is enough of another system.
    text = script.read_text().replace("/etc/os-release", str(tmp_path / "os-release"))

    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f'BASE_IMAGE is "{family} {version}"' in done.stderr
    assert "debian:bookworm-slim" in done.stderr


def test_the_build_itself_refuses_such_a_base(docker: Docker, image: str, tmp_path: Path) -> None:
    base = f"smp-test-base:{uuid.uuid4().hex[:12]}"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {image}\nRUN sed -i s/^ID=.*/ID=fedora/ /etc/os-release\n"
    )
    made = docker("build", "--quiet", "--network=host", "--tag", base, tmp_path)
    assert made.returncode == 0, made.stderr

    done = docker(
        "build", "--network=host", "--target", "os", "--build-arg", f"BASE_IMAGE={base}", ROOT
    )
    docker("rmi", "--force", base)

    assert done.returncode != 0
    assert 'BASE_IMAGE is "fedora 12"' in done.stderr


@pytest.mark.long
def test_a_base_with_a_python_of_its_own_is_taken(
    docker: Docker, base: str, tag: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for name in ("ci", "docker"):
        shutil.copytree(ROOT / name, source / name, ignore=VENDORED)
    for name in (".dockerignore", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    (source / "Dockerfile").write_text((ROOT / "Dockerfile").read_text() + LAYOUT)
    (tmp_path / "base").mkdir()
    (tmp_path / "base/Dockerfile").write_text(WITH_PYTHON.format(base=base))
    own_base = f"{tag}-base"
    made = docker("build", "--quiet", "--network=host", "--tag", own_base, tmp_path / "base")
    assert made.returncode == 0, made.stderr

    options = ("--target", "layout", "--tag", tag, "--build-arg", f"BASE_IMAGE={own_base}")
    built = subprocess.run(
        [source / "ci/image", *options],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    look = "readlink /usr/local/bin/python /usr/local/cuda && mpirun --version"
    found = docker("run", "--rm", "--network", "none", tag, "bash", "-c", look)
    docker("rmi", "--force", tag, own_base)

    assert built.returncode == 0, built.stderr[-3000:]
    assert found.stdout.splitlines()[:2] == [
        "/opt/venv/bin/python",
        "/opt/venv/lib/python3.11/site-packages/nvidia/cu13",
    ], found.stderr
    assert "4.1.4" in found.stdout
