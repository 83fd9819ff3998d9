# SPDX-License-Identifier: Apache-2.0
"""Job trees and running `train` processes: what the tests of the launcher are written with."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120  # [s] nothing here takes a tenth of it; it only ends what hangs


def train_binary() -> Path:
    named = os.environ.get("SMP_TRAIN")
    if named:
        return Path(named)
    found = sorted(ROOT.glob("build/*/bin/train"), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("no build has made `train` yet; set SMP_TRAIN")
    return found[-1]


def job_environment(**more: str) -> dict[str, str]:
    """What a container would have: no settings of this machine's user or of pytest."""
    keep = ("HOME", "LANG", "USER")
    base = {name: os.environ[name] for name in keep if name in os.environ}
    base["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    base["PYTHONUNBUFFERED"] = "1"
    return base | more


@dataclass
class Tree:
    """One host's job tree."""

    base: Path

    def read(self, name: str) -> str:
        return (self.base / name).read_text()

    @property
    def failure(self) -> str:
        return self.read("output/failure")

    @property
    def succeeded(self) -> bool:
        return (self.base / "output" / "success").exists()

    @property
    def failed(self) -> bool:
        return (self.base / "output" / "failure").exists()


@dataclass
class Running:
    """A `train` that was started."""

    process: subprocess.Popen[str]
    tree: Tree
    seen: list[str] = field(default_factory=list)

    def wait_for_line(self, text: str, times: int = 1) -> None:
        """Reads stdout until `text` was seen in as many lines. A test's limit ends a hang."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line)
            times -= text in line
            if times == 0:
                return
        pytest.fail(f"it ended before saying {text!r}: {''.join(self.seen)}{self.stderr()}")

    def stderr(self) -> str:
        return "" if self.process.stderr is None else self.process.stderr.read()

    def finish(self) -> Result:
        out, err = self.process.communicate(timeout=LIMIT)
        return Result(self.process.returncode, "".join(self.seen) + out, err, self.tree)


@dataclass
class Result:
    code: int
    out: str
    err: str
    tree: Tree


def make_trees(
    directory: Path, script: str, name: str = "train.py", **options: object
) -> list[Tree]:
    """A job tree of each host, made by the launcher itself. `files` adds files to the code."""
    code = directory / "code"
    code.mkdir()
    (code / name).write_text(textwrap.dedent(script))
    for file, text in dict(options.pop("files", {})).items():  # type: ignore[call-overload]
        (code / file).write_text(text)
    command = [train_binary(), "--make-tree", directory / "job", "--code", code, "--program", name]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            command += [f"--{option}", str(one)]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)
    hosts = int(options.get("hosts", 1))  # type: ignore[call-overload]
    if hosts == 1:
        return [Tree(directory / "job")]
    return [Tree(directory / "job" / f"algo-{i + 1}") for i in range(hosts)]
