# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine, and whether what was built elsewhere loads here."""

from __future__ import annotations

import os
import platform
import subprocess

import torch
from measuring import GPU, report


def driver() -> dict[str, str]:
    names = "name,driver_version,memory.total,pci.bus_id,compute_cap,clocks.max.sm,clocks.max.mem"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
    except OSError as error:
        return {"nvidia-smi": str(error)}
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return {"nvidia-smi": (done.stdout + done.stderr).strip() or "names no GPU"}
    return dict(zip(names.split(","), lines[0].split(", "), strict=True))


def gpu() -> dict[str, object]:
    if not GPU:
        return {}
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "gpus": torch.cuda.device_count(),
        "multiprocessors": properties.multi_processor_count,
        "cache_bytes": properties.L2_cache_size,
        "free_bytes": free,
        "total_bytes": total,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }


def library() -> dict[str, object]:
    # Here, so that what is printed before tells why they do not load.
    from smdistributed import _runtime, _smddp  # noqa: PLC0415

    if GPU and not _runtime.HAS_CUDA:
        raise SystemExit("the bundle has no GPU code: was it built with SMP_WITH_CUDA=ON?")
    return {
        "library": str(_runtime.__file__),
        "backend": str(_smddp.__file__),
        "has_cuda": _runtime.HAS_CUDA,
    }


def main() -> None:
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) * 1024
    report(
        {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "kernel": platform.release(),
            "processors": len(os.sched_getaffinity(0)),
            "memory_bytes": memory,
            **driver(),
            **gpu(),
            **library(),
        }
    )


if __name__ == "__main__":
    main()
