# SPDX-License-Identifier: Apache-2.0
"""A job on two nodes of a real Slurm: from srun to the first line of the script, above what
`srun hostname` takes, and from the end of the script to that of srun. Needs ci/setup --slurm."""

from __future__ import annotations

import statistics
import sys

from benchmark import ROOT, Result

sys.path.insert(0, str(ROOT))
from tests.digits_job import BUILT
from tests.slurm.slurm_cluster import SlurmCluster, lacks
from tests.slurm.start_and_end import END_LIMIT, START_LIMIT, measure

GOAL = (
    f"srun to the script's first line in at most {START_LIMIT:g} s above `srun hostname`, end of "
    f"the script to that of the job in at most {END_LIMIT:g} s"
)
ROUNDS = 5


def run() -> list[Result]:
    if problem := lacks():
        raise SystemExit(f"ci/bench slurm: {problem}")
    with SlurmCluster(2) as cluster:
        rounds = [measure(cluster, BUILT, cluster.shared) for _ in range(ROUNDS + 1)]
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
