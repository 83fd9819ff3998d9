# SPDX-License-Identifier: Apache-2.0
"""The build takes the nvcc of the release that torch has, wherever another one stands first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "smp_runtime"
FUNCTION = RUNTIME / "find_nvcc.cmake"


def make_nvcc(folder: Path, release: str) -> Path:
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {release}, V{release}\n")
    nvcc.chmod(0o755)
    return nvcc


def found(folder: Path, releases: list[str]) -> str:
    """Output of CMake for folders whose nvcc are of these releases; "" for a folder without."""
    folders = []
    for number, release in enumerate(releases):
        own = folder / str(number)
        own.mkdir()
        folders.append(str(own))
        if release:
            make_nvcc(own, release)
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


def configured(folder: Path, with_cuda: str) -> tuple[int, str]:
    """Exit code and words of CMake beside a torch of CUDA 13, where the only nvcc is of 12.4."""
    for file in ("torch/lib/libtorch_cuda.so", "nvidia/cu13/lib/libcudart.so.13",
                 "nvidia/nccl/lib/libnccl.so.2"):  # fmt: skip
        (folder / file).parent.mkdir(parents=True)
        (folder / file).touch()
    for name in ("cuda.cmake", "find_nvcc.cmake"):
        (folder / name).symlink_to(RUNTIME / name)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(trial NONE)\ninclude(cuda.cmake)\n"
        'message(STATUS "it has CUDA: ${SMP_HAS_CUDA}")\n'
    )
    done = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build",
         f"-DSMP_WITH_CUDA={with_cuda}", f"-DSMP_TORCH_DIR={folder / 'torch'}",
         f"-DSMP_NVCC={make_nvcc(folder, '12.4')}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_build_without_gpu_code_is_warned_of(tmp_path: Path) -> None:
    code, words = configured(tmp_path, "AUTO")

    assert code == 0, words
    assert "CMake Warning" in words
    assert (
        "GPU code is not compiled: torch comes with CUDA 13, and there is only "
        f"{tmp_path}/nvcc (release 12.4)" in words
    )
    assert "it has CUDA: OFF" in words


def test_gpu_code_that_was_asked_for_is_compiled_or_an_error(tmp_path: Path) -> None:
    code, words = configured(tmp_path, "ON")

    assert code != 0
    assert (
        "SMP_WITH_CUDA=ON: torch comes with CUDA 13, and there is only "
        f"{tmp_path}/nvcc (release 12.4)" in words
    )
