# SPDX-License-Identifier: Apache-2.0
"""Scripts of jobs, and srun with the options of pyxis."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.host_network import ROOT

MakeJob = Callable[..., Path]  # the fixture make_job
EXAMPLES = ROOT / "examples" / "slurm"

# One rank says that all are there; each says once that it was told to stop.
WAITS = """\
import os, signal, sys, time
from mpi4py import MPI
def stop(number, frame):
    os.write(1, f"stopped {MPI.COMM_WORLD.rank}\\n".encode())
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    os.write(1, b"all up\\n")
while True:
    time.sleep(0.1)
"""

# Each rank says where it is.
TELLS = """\
import os, time
from mpi4py import MPI
names = ("SM_CURRENT_HOST", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
told = " ".join(os.environ[name] for name in names)
MPI.COMM_WORLD.Barrier()
time.sleep(3)
os.write(1, f"told {MPI.COMM_WORLD.rank} {told}\\n".encode())
"""


def with_pyxis(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """Variables with which srun has the options of pyxis."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    shutil.copy(Path(__file__).parent / "pyxis_srun", bin_folder / "srun")
    return variables | {"PATH": f"{bin_folder}:{variables['PATH']}"}
