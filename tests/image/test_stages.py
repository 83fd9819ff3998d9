# SPDX-License-Identifier: Apache-2.0
"""The stages beside the image: `test`, which is a test itself, and `dev`, to work in."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tests.image.engine import ROOT, Docker

KERNEL = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n"
# Configures against the image's torch and builds and runs one program that links it.
BUILDS = """\
cp --recursive /src /work && cd /work && rm --recursive --force build
cmake --preset release -DSMP_PYTHON=/opt/venv/bin/python >/dev/null
cmake --build build/release --target topology_test >/dev/null
build/release/bin/topology_test --gtest_brief=1
"""


def build(stage: str, tag: str) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "ci/image", "--target", stage, "--tag", tag]
    return subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)


@pytest.fixture
def tag(docker: Docker) -> Iterator[str]:
    name = f"smp-test-stage:{uuid.uuid4().hex[:12]}"
    yield name
    docker("rmi", "--force", name)


@pytest.mark.long
def test_unit_tests_run_as_a_build_step(docker: Docker, tag: str) -> None:
    built = build("test", tag)

    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]


@pytest.mark.long
def test_one_can_work_in_the_stage_dev(docker: Docker, tag: str) -> None:
    built = build("dev", tag)
    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]

    def shell(script: str) -> subprocess.CompletedProcess[str]:
        mount = f"{ROOT}:/src:ro"
        run = ("run", "--rm", "--network", "none", "--volume", mount, tag)
        return docker(*run, "bash", "-euc", script, timeout=900)

    tools = shell("gdb --version && clang-tidy-16 --version && ruff --version && pytest --version")
    kernel = shell(f"cd /tmp && echo '{KERNEL}' >k.cu && nvcc -arch=sm_90 -c k.cu -o k.o && ls k.o")
    program = shell(BUILDS)

    for done in (tools, kernel, program):
        assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in program.stdout
