# SPDX-License-Identifier: Apache-2.0
"""Tools of the tests of runners: what a runner lacks here, its hyperparameters, scripts that tell
who they are."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import cluster
import pytest
from jobs import Result, train_binary

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="no torch beside this interpreter"
)
needs_hosts = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

MPI = ["sagemaker_mpi_enabled=true"]
TORCHRUN = ["sagemaker_torch_distributed_enabled=true"]
SMDDP = ["sagemaker_distributed_dataparallel_enabled=true"]
RANK_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")

# Scripts speak by one write a line: torchrun's workers share a pipe, and print() writes piecewise.
TELL_RANK = f"""
    import json, os, socket
    names = {(*RANK_NAMES, "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "SM_CURRENT_HOST")!r}
    told = {{name: os.environ.get(name) for name in names}} | {{"host": socket.gethostname()}}
    os.write(1, ("told " + json.dumps(told) + "\\n").encode())
"""

# A sum over all processes, through the network.
ALL_REDUCE = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    host = os.environ["SM_CURRENT_HOST"]
    os.write(1, f"sum {int(total)} rank {dist.get_rank()} {host}\\n".encode())
    dist.destroy_process_group()
"""

# The same over the library's backend.
ALL_REDUCE_SMDDP = """
    import smdistributed.dataparallel.torch.torch_smddp
""" + ALL_REDUCE.replace("gloo", "smddp")

# One rank says where it is when both are there; each says once that it was told to stop.
WAIT_FOR_STOP = """
    import os, signal, sys, time
    def stop(number, frame):
        os.write(1, f"stopped {os.environ['RANK']}\\n".encode())
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    os.write(1, f"up {os.environ['RANK']}\\n".encode())
    while True:
        time.sleep(0.1)
"""


def processes(count: int) -> str:
    return f"sagemaker_mpi_num_of_processes_per_host={count}"


def library() -> Path:
    """The folder of our package beside `train`, for PYTHONPATH; skips where none was built."""
    folder = train_binary().parents[1] / "python"
    if not list(folder.glob("smdistributed/_smddp*.so")):
        pytest.skip(f"no library beside `train`: {folder}/smdistributed has no _smddp*.so")
    return folder


def told(result: Result) -> list[dict[str, str]]:
    """The ranks' words about themselves, by rank."""
    lines = [line.split("told ", 1)[1] for line in result.out.splitlines() if "told " in line]
    return sorted((json.loads(line) for line in lines), key=lambda one: int(one["RANK"] or -1))
