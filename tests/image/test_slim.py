# SPDX-License-Identifier: Apache-2.0
"""The image without torch.compile: built, and held to the same contract."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker


@pytest.fixture
def slim_image(docker: Docker) -> Iterator[str]:
    name = f"smp-test-slim:{uuid.uuid4().hex[:12]}"
    built = subprocess.run(
        [ROOT / "ci/image", "--slim", "--tag", name],
        capture_output=True,
        text=True,
        timeout=2700,
        check=False,
    )
    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]
    yield name
    docker("rmi", "--force", name)


@pytest.mark.long
def test_slim_fulfils_the_contract_without_a_compiler(slim_image: str, tmp_path: Path) -> None:
    files = [ROOT / "tests/image" / f"test_{name}.py" for name in ("contract", "documents")]
    report = tmp_path / "report.txt"

    with report.open("w") as log:
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *files],
            cwd=ROOT,
            env=os.environ | {"SMP_TEST_IMAGE": slim_image},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=1800,
            check=False,
        ).returncode

    text = report.read_text()
    assert code == 0, text[-5000:]
    # Tests that skip themselves for want of the image prove nothing.
    assert "there is no image" not in text, text[-5000:]
