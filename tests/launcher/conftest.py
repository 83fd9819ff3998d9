# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the launcher's tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for jobs.py and cluster.py, however pytest imports

from jobs import (
    WARM,
    Result,
    Running,
    Tree,
    hang_up_as_usual,
    job_environment,
    train_binary,
    trees_folder,
)


@contextmanager
def own_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=trees_folder()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with own_folder() as path:
        yield path


@pytest.fixture(scope="session")
def warm_folder() -> Iterator[Path]:
    with own_folder() as path:
        yield path


@pytest.fixture
def warm_scripts(warm_interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs' scripts find torch imported, on hosts of their own as well."""
    monkeypatch.setenv(WARM, str(warm_interpreter))


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """start(tree, [arguments], **environment) starts `train`; what a test leaves is killed."""
    started: list[subprocess.Popen[str]] = []

    def starter(tree: Tree, *arguments: str, **environment: str) -> Running:
        process = subprocess.Popen(
            [train_binary(), *arguments],
            env=job_environment(SAGEMAKER_BASE_DIR=str(tree.base), **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hang_up_as_usual,  # noqa: PLW1509
        )
        started.append(process)
        return Running(process, tree)

    yield starter
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.fixture
def run(start: Callable[..., Running]) -> Callable[..., Result]:
    def runner(tree: Tree, *arguments: str, **environment: str) -> Result:
        return start(tree, *arguments, **environment).finish()

    return runner
