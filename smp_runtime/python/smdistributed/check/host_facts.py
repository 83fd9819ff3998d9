# SPDX-License-Identifier: Apache-2.0
"""Facts about a rank's host, and its measured speed of computing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

import torch

from smdistributed.modelparallel import __version__

_DRIVER = Path("/proc/driver/nvidia/version")
_COMPUTE_SECONDS = 0.3


@dataclass(frozen=True)
class RankFacts:
    host: str
    rank: int
    flops: float  # [1/s] of a matrix product: bfloat16 on a GPU, else float32 in one thread
    device: str
    cpus: int
    versions: dict[str, str]
    shared_memory_bytes: int  # size of /dev/shm
    free_bytes: dict[str, int]  # by folder
    network_bits_per_second: float  # as the interface says; 0: it does not


def rank_facts(rank: int, device: torch.device) -> RankFacts:
    """Blocks for the time of the compute probe."""
    is_gpu = device.type == "cuda"
    return RankFacts(
        host=os.environ.get("SM_CURRENT_HOST") or platform.node(),
        rank=rank,
        flops=_flops(device),
        device=torch.cuda.get_device_name(device) if is_gpu else f"{os.cpu_count()} CPUs",
        cpus=os.cpu_count() or 1,
        versions=_versions(),
        shared_memory_bytes=shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0,
        free_bytes=_free_bytes(),
        network_bits_per_second=_bits_per_second(os.environ.get("SM_NETWORK_INTERFACE_NAME", "")),
    )


def _flops(device: torch.device) -> float:
    is_gpu = device.type == "cuda"
    size, kind = (4096, torch.bfloat16) if is_gpu else (384, torch.float32)
    a, b = (torch.ones(size, size, dtype=kind, device=device) for _ in range(2))
    times: list[float] = []
    # One thread: several wait for each other where ranks have more threads than there are CPUs.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    end = time.perf_counter() + _COMPUTE_SECONDS
    while len(times) < 4 or time.perf_counter() < end:
        start = time.perf_counter()
        a @ b
        if is_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    return 2 * size**3 / min(times[1:])  # the first one warms up


def _versions() -> dict[str, str]:
    versions = {"smp": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    if torch.cuda.is_available():
        versions["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    if _DRIVER.exists() and (
        found := re.search(r"Kernel Module[^\d]*([\d.]+)", _DRIVER.read_text())
    ):
        versions["driver"] = found[1]
    return versions


def _free_bytes() -> dict[str, int]:
    """Free bytes by folder that a job writes to; folders of one file system count once."""
    names = ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR", "SM_CHECKPOINT_DIR")
    written = [os.environ.get(name, "") for name in names]
    folders = [one for one in (*written, gettempdir()) if os.path.isdir(one)]
    by_system = {os.stat(folder).st_dev: folder for folder in reversed(folders)}
    return {folder: shutil.disk_usage(folder).free for folder in by_system.values()}


def _bits_per_second(interface: str) -> float:
    """A virtual interface may say none, or one that nobody holds it to."""
    try:
        return max(float(Path(f"/sys/class/net/{interface}/speed").read_text()), 0) * 1e6
    except (OSError, ValueError):
        return 0
