# SPDX-License-Identifier: Apache-2.0
"""ci/bench installs and builds what a benchmark needs and the tree has not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents.named_tests import ROOT

BENCHMARK = """
from benchmark import Result

GOAL = "none"
{more}

def run():
    return Result("one", 1.0, 1.0, 1.0, GOAL)
"""


class Clone:
    """ci/bench with one benchmark, beside commands that note that they were called."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        (folder / "ci").mkdir()
        (folder / "tests/bench/benches").mkdir(parents=True)
        for name in ("ci/bench", "tests/bench/benchmark.py"):
            shutil.copy2(ROOT / name, folder / name)
        (folder / "tests/bench/benches/one.py").write_text(BENCHMARK.format(more=more))
        self.command("setup", "mkdir -p .venv/bin && touch .venv/locks.sha256")
        self.command("build", "touch .venv/bin/train")

    def command(self, name: str, does: str) -> None:
        path = self.folder / "ci" / name
        path.write_text(f'#!/bin/sh\ncd "{self.folder}" && echo {name} >>calls && {does}\n')
        path.chmod(0o755)

    def bench(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "ci/bench", "one"], capture_output=True, text=True, check=False
        )

    @property
    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().split() if calls.exists() else []


def test_what_is_missing_is_installed_and_built_once(tmp_path: Path) -> None:
    clone = Clone(tmp_path)

    first, second = clone.bench(), clone.bench()

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert clone.calls == ["setup", "build"]
    assert '"pass": true' in first.stdout


def test_an_environment_without_a_build_is_kept(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/locks.sha256").touch()

    assert clone.bench().returncode == 0
    assert clone.calls == ["build"]


def test_a_benchmark_of_no_build_needs_none(tmp_path: Path) -> None:
    clone = Clone(tmp_path, "NEEDS_BUILD = False")

    assert clone.bench().returncode == 0
    assert clone.calls == []


@pytest.mark.parametrize("name", ["setup", "build"])
def test_a_command_that_fails_is_named_without_a_traceback(tmp_path: Path, name: str) -> None:
    clone = Clone(tmp_path)
    clone.command(name, "exit 3")

    done = clone.bench()

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"ci/bench: ci/{name} failed with 3\n"


def test_without_a_name_each_benchmark_is_listed_with_its_goal() -> None:
    done = subprocess.run([ROOT / "ci/bench"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    benches = sorted(path.stem for path in (ROOT / "tests/bench/benches").glob("*.py"))
    assert [line.split()[0] for line in done.stdout.splitlines()] == benches
