# SPDX-License-Identifier: Apache-2.0
"""The installed C++ library, and a project of somebody else's that uses it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cpp.commands import BUILD, HERE, ROOT, succeed


@pytest.fixture(scope="session", autouse=True)
def start_warm(warm_interpreter: Path) -> None:
    """All jobs of Python."""


@pytest.fixture(scope="session")
def folder() -> Path:
    """For what is installed and built. In the repository, so that the compiler's cache, if there is
    one, has the objects for other clones, too: Torch's headers are minutes of work."""
    if shutil.which("ccache"):
        os.environ["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
        os.environ["CCACHE_BASEDIR"] = str(ROOT)
        os.environ["CCACHE_NOHASHDIR"] = "1"
    made = ROOT / "build" / "cpp-tests"
    shutil.rmtree(made, ignore_errors=True)
    return made


@pytest.fixture(scope="session")
def installed(folder) -> Path:
    succeed("cmake", "--install", BUILD, "--component", "cpp", "--prefix", folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="session")
def torch_folder() -> Path:
    """Folder of this interpreter's package."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def build(installed, folder, torch_folder) -> Callable[[Path], Path]:
    """Builds a project by the installed library, as users do; gives the build folder."""

    def build_project(source: Path) -> Path:
        made = folder / source.name
        succeed(
            "cmake", "-S", source, "-B", made, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={installed}", f"-DSMP_TORCH_DIR={torch_folder}",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        )  # fmt: skip
        succeed("cmake", "--build", made)
        return made

    return build_project


@pytest.fixture(scope="session")
def outside(build) -> Path:
    """The build folder of tests/cpp/outside."""
    return build(HERE / "outside")
