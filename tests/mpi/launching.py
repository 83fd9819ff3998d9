# SPDX-License-Identifier: Apache-2.0
"""Starts a job of tests/mpi/jobs on this machine and says how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
JOBS = Path(__file__).resolve().parent / "jobs"
_LIMIT_SECONDS = 600


@dataclass
class Outcome:
    code: int
    output: str


def run_mpi(
    processes: int, job: str, *args: str, python: str | None = None, **variables: str
) -> Outcome:
    """Under Open MPI, as root too, with more ranks than CPUs. No rendezvous is exported. By the
    interpreter `python`, or a warm one."""
    return _run(
        [
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"),
            *("--mca", "btl", "self,vader,tcp", "--mca", "btl_vader_single_copy_mechanism", "none"),
            *("-np", str(processes)),
            *(python or os.environ.get("WARM_PYTHON", sys.executable), str(JOBS / job), *args),
        ],
        variables,
    )


def agrees_with_plain_torch(outcome: Outcome) -> bool:
    """True if a job with `SMP_SELF_CHECK` computed all that it compares as one process does."""
    lines = [line for line in outcome.output.splitlines() if "agree with plain PyTorch" in line]
    return len(lines) == 1 and "gradients of" in lines[0] and "not compared" not in lines[0]


def peers_python() -> Path | None:
    """An interpreter that has DeepSpeed beside all of ours, made by ci/peers."""
    peers = Path(__file__).resolve().parents[2] / "build" / "peers"
    return peers / "bin" / "python" if (peers / "complete").exists() else None


def run_torchrun(
    processes: int, job: str, *args: str, python: Path | None = None, **variables: str
) -> Outcome:
    """Under torchrun, which serves the store itself, on a port of its choice; by the interpreter
    `python`, or this one."""
    return _run(
        [
            *(str(python or sys.executable), "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(processes), str(JOBS / job), *args),
        ],
        variables,
    )


def run_alone(job: str, *args: str, **variables: str) -> Outcome:
    """As one bare process."""
    return _run([sys.executable, str(JOBS / job), *args], variables)


def together(*jobs: Callable[[], Result]) -> list[Result]:
    """Results of jobs that have nothing to do with each other, run at the same time: one process
    alone leaves processors idle, and so do ranks that start."""
    with ThreadPoolExecutor(len(jobs)) as threads:
        return [future.result() for future in [threads.submit(job) for job in jobs]]


def _run(command: list[str], variables: dict[str, str]) -> Outcome:
    # Variables that another launcher set must not decide who the ranks are.
    foreign = ("MASTER_", "OMPI_", "PMIX_", "RANK", "WORLD_SIZE", "LOCAL_", "SM_", "SMP_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=_LIMIT_SECONDS)
    except BaseException:
        process.terminate()  # a launcher that is killed at once leaves its ranks behind
        try:
            process.wait(10)
        finally:
            process.kill()
        raise
    return Outcome(process.returncode, output)
