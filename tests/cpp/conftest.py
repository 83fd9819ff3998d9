# SPDX-License-Identifier: Apache-2.0
"""The installed C++ library, and a project of somebody else's that uses it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.cpp.commands import BUILD, HERE, succeed


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    prefix = tmp_path_factory.mktemp("installed")
    succeed("cmake", "--install", BUILD, "--component", "cpp", "--prefix", prefix)
    return prefix


@pytest.fixture(scope="session")
def torch_folder() -> Path:
    """Of this interpreter's package."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def outside(installed, torch_folder, tmp_path_factory) -> Path:
    """The build folder of tests/cpp/outside."""
    folder = tmp_path_factory.mktemp("outside")
    succeed(
        "cmake", "-S", HERE / "outside", "-B", folder, "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={installed}", f"-DSMP_TORCH_DIR={torch_folder}",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    )  # fmt: skip
    succeed("cmake", "--build", folder)
    return folder
