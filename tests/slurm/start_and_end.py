# SPDX-License-Identifier: Apache-2.0
"""What `train` adds to a step of Slurm: until the script begins, and after it has ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.digits_job import make_tree
from tests.slurm.slurm_cluster import SlurmCluster

START_LIMIT = 2.0  # [s] from srun to the script's first line, above `srun hostname`
END_LIMIT = 1.0  # [s] from the end of the script to that of the job

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


def measure(cluster: SlurmCluster, variables: dict[str, str], folder: Path) -> Times:
    """A job of MPI with one rank a node; `folder` takes its tree."""
    tree = folder / "start_and_end"
    if not tree.exists():
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(SCRIPT)
        make_tree(tree, folder / "code", "--processes", 1)

    begin = time.time()
    cluster.run("srun", "-N2", "hostname")
    hostname = time.time() - begin

    begin = time.time()
    done = cluster.run("srun", "-N2", "train", SAGEMAKER_BASE_DIR=str(tree), **variables)
    end = time.time()

    assert done.returncode == 0, done.stdout
    spoken = [float(line.split("now ")[1]) for line in done.stdout.splitlines() if "now " in line]
    assert len(spoken) == cluster.nodes, done.stdout
    return Times(hostname, min(spoken) - begin - hostname, end - max(spoken))
