# SPDX-License-Identifier: Apache-2.0
"""A job on two hosts: from both hosts being up to the first line of a rank, and from the last line
to both hosts' end. Hosts are containers where an engine with our image runs, else network, mount
and PID namespaces; SMP_BENCH_HOSTS=containers or =namespaces chooses."""

from __future__ import annotations

import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from benchmark import ROOT, Result

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "launcher"))
import cluster
from jobs import Tree, make_trees, train_binary, trees_folder

UP_LIMIT = 2.0  # [s]
END_LIMIT = 1.0  # [s]
GOAL = (
    f"two hosts up to the script's first line in at most {UP_LIMIT:g} s (the reference: 3.6 s), "
    f"last line to both hosts' end in at most {END_LIMIT:g} s (the reference: 31 s)"
)
ROUNDS = 5
LIMIT = 120  # [s] only ends what hangs

# All hosts are on one machine, so their clocks agree.
SCRIPT = """
import time
print("first line", time.time(), flush=True)
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
print("last line", time.time(), flush=True)
"""


@dataclass(frozen=True)
class Round:
    """Seconds."""

    until_first_line: float
    after_last_line: float


def stamps(output: str, word: str) -> list[float]:
    return [float(line.split(word)[1]) for line in output.splitlines() if word in line]


def round_of(up: float, output: str, ended: float) -> Round:
    first, last = stamps(output, "first line "), stamps(output, "last line ")
    assert len(first) == len(last) == 2, f"not two ranks spoke: {output}"
    return Round(min(first) - up, ended - max(last))


def trees_in(folder: Path) -> list[Tree]:
    return make_trees(folder, SCRIPT, hosts=2, processes=1)


def run_namespaces(folder: Path) -> Round:
    with cluster.Cluster(folder, trees_in(folder)) as hosts:
        binaries = (ROOT / ".venv").resolve() / "bin"  # has mpi4py
        running = hosts.start_all(PATH=f"{binaries}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        up = time.time()
        results = [host.finish() for host in running]
        ended = time.time()
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    return round_of(up, results[0].out, ended)


class Engine:
    """A Docker engine that runs already."""

    def __init__(self) -> None:
        found = subprocess.run(
            [ROOT / "ci/engine", "env"], capture_output=True, text=True, check=False
        )
        self.lacks = found.stderr.strip() or "no engine answers" if found.returncode else ""
        name, _, value = found.stdout.strip().partition("=")
        self.environment = os.environ | ({name: value} if name else {})
        self.image = os.environ.get("SMP_TEST_IMAGE", "smp-train:dev")
        if not self.lacks and self.call("image", "inspect", self.image, check=False)[0] != 0:
            self.lacks = f"there is no image {self.image}"

    def call(self, *words: object, check: bool = True) -> tuple[int, str]:
        debian = Path("/usr/bin/docker")
        done = subprocess.run(
            [debian if debian.exists() else "docker", *map(str, words)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0 or not check, f"docker {words}: {done.stderr}"
        return done.returncode, done.stdout

    def when(self, container: str, what: str) -> float:
        """Seconds since the epoch of the engine's own note, which has nanoseconds."""
        text = self.call("inspect", "--format", "{{.State." + what + "}}", container)[1].strip()
        seconds, _, fraction = text.rstrip("Z").partition(".")
        moment = datetime.datetime.fromisoformat(seconds + "+00:00").timestamp()
        return moment + float(f"0.{fraction or 0}")


def run_containers(engine: Engine, folder: Path) -> Round:
    mark = f"smp-bench-{uuid.uuid4().hex[:8]}"
    names = [f"{mark}-algo-1", f"{mark}-algo-2"]
    trees = trees_in(folder)
    engine.call("network", "create", mark)
    try:
        for index, (name, tree) in enumerate(zip(names, trees, strict=True)):
            alias = f"algo-{index + 1}"
            engine.call("create", "--name", name, "--network", mark, "--network-alias", alias,
                        "--volume", f"{tree.base}:/opt/ml", engine.image, "train")  # fmt: skip
        engine.call("start", *names)
        codes = engine.call("wait", *names)[1].split()
        output = engine.call("logs", names[0])[1]
        assert codes == ["0", "0"], output
        up = max(engine.when(name, "StartedAt") for name in names)
        ended = max(engine.when(name, "FinishedAt") for name in names)
    finally:
        engine.call("rm", "--force", "--volumes", *names, check=False)
        engine.call("network", "rm", mark, check=False)
    return round_of(up, output, ended)


def run() -> list[Result]:
    installed = ROOT / ".venv" / "bin" / "train"
    if installed.exists():
        os.environ.setdefault("SMP_TRAIN", str(installed))
    wanted = os.environ.get("SMP_BENCH_HOSTS", "")
    engine = Engine() if wanted != "namespaces" else None
    kind = "containers" if engine is not None and not engine.lacks else "namespaces"
    if wanted == "containers" and engine is not None and engine.lacks:
        raise SystemExit(f"ci/bench hosts: {engine.lacks}")
    if kind == "namespaces" and cluster.lacks():
        raise SystemExit(f"ci/bench hosts: {cluster.lacks()}; no containers either")
    assert train_binary().exists()

    rounds = []
    for _ in range(ROUNDS + 1):
        with tempfile.TemporaryDirectory(dir=trees_folder()) as folder:
            rounds.append(
                run_containers(engine, Path(folder))
                if engine is not None and kind == "containers"
                else run_namespaces(Path(folder))
            )
    kept = rounds[1:]  # the first round warms the file cache
    until, after = [one.until_first_line for one in kept], [one.after_last_line for one in kept]
    rows = [(f"two hosts ({kind}), s", "min", "median", "max", "goal")]
    for name, values, goal in (
        ("up to first line", until, UP_LIMIT),
        ("last line to both ended", after, END_LIMIT),
    ):
        figures = (min(values), statistics.median(values), max(values), goal)
        rows.append((name, *(f"{figure:.2f}" for figure in figures)))
    return [
        Result("hosts-start", statistics.median(until), UP_LIMIT, 1.0, GOAL, rows),
        Result("hosts-end", statistics.median(after), END_LIMIT, 1.0, GOAL),
    ]
