# SPDX-License-Identifier: Apache-2.0
"""The tutorials that need containers: their commands run and print what their pages show."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.documents.tutorials import TUTORIALS, missing_lines, run_tutorial
from tests.image.engine import ROOT, Docker

pytestmark = pytest.mark.cluster


def engine() -> dict[str, str]:
    """As after `export $(ci/engine env)`."""
    found = subprocess.run([ROOT / "ci/engine", "env"], capture_output=True, text=True, check=True)
    name, _, value = found.stdout.strip().partition("=")
    return {name: value, "DOCKER_BUILDKIT": "1"}


def page_of(name: str) -> str:
    return (TUTORIALS / f"{name}.md").read_text()


@pytest.mark.long
def test_extend_image(docker: Docker, image: str, tmp_path: Path) -> None:
    tag = f"smp-test-tutorial:{uuid.uuid4().hex[:12]}"
    try:
        output = run_tutorial("extend_image", tmp_path, IMAGE=image, TAG=tag, **engine())
    finally:
        docker("rmi", "--force", tag)

    assert missing_lines(page_of("extend_image"), output) == [], output
    accuracy = re.findall(r"epoch 10: .* accuracy ([\d.]+)%", output)
    assert float(accuracy[0]) > 88


@pytest.mark.long
def test_two_containers(image: str, tmp_path: Path) -> None:
    output = run_tutorial("two_containers", tmp_path, IMAGE=image, **engine())

    assert missing_lines(page_of("two_containers"), output) == [], output
    accuracy = re.findall(r"test accuracy ([\d.]+)%", output)
    assert float(accuracy[-1]) > 95
