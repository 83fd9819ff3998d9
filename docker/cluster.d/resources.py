# SPDX-License-Identifier: Apache-2.0
"""Each container's share of the machine: shared memory, GPUs, limits. Pure but for two probes."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess

GIB = 1 << 30
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def seconds(text: str) -> float:
    """ "10s", "2m", "500ms", "1h"; a number alone counts seconds. For argparse."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 10s, 2m or 500ms")
    return float(match[1]) * UNIT_SECONDS[match[2]]


def shared_memory(machine_bytes: int, hosts: int) -> int:
    """Size of /dev/shm of each container: its share of half the machine's memory, at least 1 GiB.

    A limit, not a reservation. Docker's own 64 MB are too little for data loaders, for NCCL and
    for ranks that exchange tensors through shared memory; the service gives half the memory too.
    """
    return max(GIB, machine_bytes // 2 // hosts)


def split_gpus(gpus: int, hosts: int) -> list[list[int]]:
    """Consecutive GPUs for each host, as many for each; all for each where there are too few.

    Sharing is honest for a try on one GPU, and NCCL refuses two ranks on one GPU by itself.
    """
    if gpus < hosts:
        return [list(range(gpus))] * hosts
    share = gpus // hosts
    return [list(range(host * share, (host + 1) * share)) for host in range(hosts)]


def gpu_requests(choice: str, gpus: int, hosts: int) -> list[str | None]:
    """Argument of `docker create --gpus` for each host, None for nothing.

    `choice`: auto (the machine's, divided), none, or a text of the user for every host.
    """
    if choice == "none" or (choice == "auto" and gpus == 0):
        return [None] * hosts
    if choice != "auto":
        return [choice] * hosts
    # The inner quotes are part of the value: a comma separates options without them.
    return ['"device=' + ",".join(map(str, part)) + '"' for part in split_gpus(gpus, hosts)]


def machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_gpus() -> int:
    """GPUs that containers can be given: the driver lists them and NVIDIA's hook is installed."""
    lister = shutil.which("nvidia-smi")
    hook = shutil.which("nvidia-container-runtime-hook") or shutil.which("nvidia-ctk")
    if lister is None or hook is None:
        return 0
    try:
        listed = subprocess.run(
            [lister, "-L"], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return 0  # a driver that hangs gives no GPU
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def limit_options(options: argparse.Namespace, hosts: int) -> list[str]:
    """Words of `docker create` that are the same for every host."""
    shm = options.shm_size or str(shared_memory(machine_memory(), hosts))
    words = ["--shm-size", shm, *(word for text in options.ulimit for word in ("--ulimit", text))]
    words += ["--stop-timeout", str(round(options.stop_timeout))]
    if options.cpus:
        words += ["--cpus", str(options.cpus)]
    if options.memory:
        # No swap: a job that needs more is ended as it would be on the service.
        words += ["--memory", options.memory, "--memory-swap", options.memory]
    if options.pids:
        words += ["--pids-limit", str(options.pids)]
    return words
