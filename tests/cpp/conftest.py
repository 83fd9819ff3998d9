# SPDX-License-Identifier: Apache-2.0
"""The installed C++ library, and a project of somebody else's that uses it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
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
def build(installed, torch_folder, tmp_path_factory) -> Callable[[Path], Path]:
    """Builds a project by the installed library, as users do; gives the build folder."""

    def build_project(source: Path) -> Path:
        folder = tmp_path_factory.mktemp(source.name)
        succeed(
            "cmake", "-S", source, "-B", folder, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={installed}", f"-DSMP_TORCH_DIR={torch_folder}",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        )  # fmt: skip
        succeed("cmake", "--build", folder)
        return folder

    return build_project


@pytest.fixture(scope="session")
def outside(build) -> Path:
    """The build folder of tests/cpp/outside."""
    return build(HERE / "outside")
