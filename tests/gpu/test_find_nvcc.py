# SPDX-License-Identifier: Apache-2.0
"""Which nvcc the build takes: of the release that torch has, wherever another one stands first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FUNCTION = Path(__file__).resolve().parents[2] / "smp_runtime" / "find_nvcc.cmake"


def found(folder: Path, releases: list[str]) -> str:
    """What CMake finds in folders whose nvcc are of these releases; "" for a folder without."""
    folders = []
    for number, release in enumerate(releases):
        own = folder / str(number)
        own.mkdir()
        folders.append(str(own))
        if release:
            nvcc = own / "nvcc"
            nvcc.write_text(
                f"#!/bin/sh\necho Cuda compilation tools, release {release}, V{release}\n"
            )
            nvcc.chmod(0o755)
    script = folder / "find.cmake"
    script.write_text(
        f"include({FUNCTION})\n"
        f"smp_find_nvcc(nvcc 13 {' '.join(folders)})\n"
        'message("${nvcc} ${nvcc_REJECTED}")\n'
    )
    done = subprocess.run(
        ["cmake", "-P", script], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("releases", "expected"),
    [
        (["13.0"], "{folder}/0/nvcc"),
        (["12.4", "13.0"], "{folder}/1/nvcc"),
        (["", "13.1", "13.0"], "{folder}/1/nvcc"),
        (["12.4", ""], "nvcc-NOTFOUND {folder}/0/nvcc (release 12.4)"),
        ([""], "nvcc-NOTFOUND"),
    ],
)
def test_the_first_of_torchs_release_is_taken(
    tmp_path: Path, releases: list[str], expected: str
) -> None:
    assert found(tmp_path, releases) == expected.format(folder=tmp_path)
