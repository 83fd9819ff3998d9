# SPDX-License-Identifier: Apache-2.0
"""Job trees and running `train` processes: what the tests of the launcher are written with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from unittest import SkipTest

ROOT = Path(__file__).resolve().parents[2]
WARM = "SMP_TEST_PYTHON"  # names what starts scripts, instead of the interpreter on PATH
LIMIT = 120  # [s] nothing here takes a tenth of it; it only ends what hangs


# A script that ends well when it is asked to stop, and says so: each line in one write, since the
# mpirun of Open MPI 5 puts pieces of lines of several ranks together. Not by signal.pause(), here
# and in other tests: it would sleep through a signal that comes just before it.
WAIT_FOR_STOP = """
    import os, signal, sys, time
    def stop(number, frame):
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", "-")
        print(end=f"stopped {rank}\\n", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    print(end="up\\n", flush=True)
    while True:
        time.sleep(0.1)
"""


def hang_up_as_usual() -> None:
    """In a child: whoever runs the tests under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def train_binary() -> Path:
    named = os.environ.get("SMP_TRAIN")
    if named:
        return Path(named)
    found = sorted(ROOT.glob("build/*/bin/train"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SkipTest("no build has made `train` yet; set SMP_TRAIN")  # pytest knows it
    return found[-1]


def trees_folder() -> Path:
    """Where job trees are made. Not below /tmp: the hosts of tests have folders of their own
    there."""
    parent = Path(os.environ.get("SMP_TEST_FOLDER", ROOT / "build" / "launcher-tests"))
    parent.mkdir(parents=True, exist_ok=True)
    return parent


def job_environment(**more: str) -> dict[str, str]:
    """The environment of a container: no settings of this machine's user or of pytest."""
    keep = ("HOME", "LANG", "USER")
    base = {name: os.environ[name] for name in keep if name in os.environ}
    base["PATH"] = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    base["PYTHONUNBUFFERED"] = "1"
    if WARM in os.environ:
        base["SM_LAUNCH_PYTHON"] = os.environ[WARM]
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

    def wait_for_line(self, text: str, times: int = 1, limit: float = LIMIT) -> None:
        """Reads stdout until `text` was seen in as many lines; after `limit` it kills the
        process."""
        assert self.process.stdout is not None
        watch = threading.Timer(limit, self.process.kill)
        watch.start()
        try:
            for line in self.process.stdout:
                self.seen.append(line)
                times -= text in line
                if times == 0:
                    return
        finally:
            watch.cancel()
        said = "".join(self.seen) + self.stderr()
        raise AssertionError(f"it ended before saying {text!r}: {said}")

    def stderr(self) -> str:
        return "" if self.process.stderr is None else self.process.stderr.read()

    def finish(self, limit: float = LIMIT) -> Result:
        """Not by communicate(): it would lose what wait_for_line() has read ahead."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with ThreadPoolExecutor(max_workers=2) as readers:
            out = readers.submit(self.process.stdout.read)
            err = readers.submit(self.process.stderr.read)
            try:
                code = self.process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        return Result(code, "".join(self.seen) + out.result(), err.result(), self.tree)


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
    # Copies, as the service lays them out: a linked script's folder is the one it lies in.
    command = [train_binary(), "--make-tree", directory / "job", "--copy"]
    command += ["--code", code, "--program", name]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            command += [f"--{option}", str(one)]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)
    hosts = int(options.get("hosts", 1))  # type: ignore[call-overload]
    if hosts == 1:
        return [Tree(directory / "job")]
    return [Tree(directory / "job" / f"algo-{i + 1}") for i in range(hosts)]
