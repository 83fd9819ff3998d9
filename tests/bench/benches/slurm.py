# SPDX-License-Identifier: Apache-2.0
"""A job on two nodes of a real Slurm: from srun to the first line of the script, above what
`srun hostname` takes, and from the end of the script to that of srun. Needs ci/setup --slurm."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmark import ROOT, Result

sys.path.insert(0, str(ROOT))
from tests.digits_job import BUILT, make_tree
from tests.slurm.slurm_cluster import SlurmCluster, lacks

START_LIMIT = 2.0  # [s] from srun to the script's first line, above `srun hostname`
END_LIMIT = 1.0  # [s] from the end of the script to that of the job
GOAL = (
    f"srun to the script's first line in at most {START_LIMIT:g} s above `srun hostname`, end of "
    f"the script to that of the job in at most {END_LIMIT:g} s"
)
ROUNDS = 5

# All nodes are on one machine, so their clocks agree.
SCRIPT = """\
import os, time
os.write(1, f"now {time.time()}\\n".encode())
"""


@dataclass(frozen=True)
class Times:
    """Seconds."""

    hostname: float  # all of `srun hostname`
    start_above_hostname: float
    end: float


def run() -> list[Result]:
    if problem := lacks():
        raise SystemExit(f"ci/bench slurm: {problem}")
    with SlurmCluster(2) as cluster:
        tree = make_job(cluster.shared)
        rounds = [measure(cluster, tree) for _ in range(ROUNDS + 1)]
    kept = rounds[1:]  # the first round warms the file cache
    start = [one.start_above_hostname for one in kept]
    end = [one.end for one in kept]
    rows = [("two nodes of Slurm, s", "min", "median", "max", "limit")]
    for name, times, limit in (
        ("srun hostname", [one.hostname for one in kept], "-"),
        ("srun to first line, above that", start, f"{START_LIMIT:g}"),
        ("end of script to end of job", end, f"{END_LIMIT:g}"),
    ):
        figures = (min(times), statistics.median(times), max(times))
        rows.append((name, *(f"{figure:.2f}" for figure in figures), limit))
    return [
        Result("slurm-start", statistics.median(start), START_LIMIT, 1.0, GOAL, rows),
        Result("slurm-end", statistics.median(end), END_LIMIT, 1.0, GOAL),
    ]


def make_job(folder: Path) -> Path:
    """The tree of a job of MPI with one rank a node."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(SCRIPT)
    make_tree(folder / "job", folder / "code", "--processes", 1)
    return folder / "job"


def measure(cluster: SlurmCluster, tree: Path) -> Times:
    begin = time.time()
    cluster.run("srun", "-N2", "hostname")
    hostname = time.time() - begin

    begin = time.time()
    done = cluster.run("srun", "-N2", "train", SAGEMAKER_BASE_DIR=str(tree), **BUILT)
    end = time.time()

    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    spoken = [float(line.split("now ")[1]) for line in done.stdout.splitlines() if "now " in line]
    if len(spoken) != cluster.nodes:
        raise RuntimeError(f"not one line of each node: {done.stdout}")
    return Times(hostname, min(spoken) - begin - hostname, end - max(spoken))
