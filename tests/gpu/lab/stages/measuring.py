# SPDX-License-Identifier: Apache-2.0
"""Shared by the stages' programs: their device, clocks, and how they report.

Their arguments: the file to write, the bundle, the seconds they may take.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch


def sees_gpu() -> bool:
    """True if torch sees a GPU. Without one these programs are only rehearsed: small, on the CPU.
    Raises SystemExit with torch's reason if this is no rehearsal, for nothing would be shown."""
    if torch.cuda.is_available():
        return True
    if os.environ.get("SMP_GPU_REHEARSAL") == "1":
        return False
    try:
        torch.cuda.init()
        reason = "torch.cuda.is_available() is false"
    except (AssertionError, RuntimeError) as error:  # the first: a torch built without CUDA
        reason = str(error).strip().splitlines()[0]
    raise SystemExit(f"torch {torch.__version__} sees no GPU: {reason}")


GPU = sees_gpu()
DEVICE = torch.device("cuda" if GPU else "cpu")


def report(found: dict[str, Any]) -> None:
    """Writes what was found where the caller of this program looks, and prints it."""
    print(json.dumps(found, indent=1), flush=True)
    target = Path(sys.argv[1])
    draft = target.with_name(target.name + ".new")
    draft.write_text(json.dumps(found))
    draft.replace(target)  # whole, whenever this program is ended


def synchronize() -> None:
    if GPU:
        torch.cuda.synchronize()


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds that the device is busy with the work, by events; on the CPU by a clock."""
    if not GPU:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def by_turns(
    works: Mapping[str, Callable[[], object]], rounds: int, limit: float = 2.0
) -> dict[str, float]:
    """Median seconds of each, measured by turns: what else the machine does slows all alike.

    The first two rounds are not counted. Ends early, but not before the third, after `limit`
    seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    begin = time.perf_counter()
    for number in range(rounds + 2):
        for name, work in works.items():
            took = seconds_of(work)
            if number > 1:
                times[name].append(took)
        if number > 2 and time.perf_counter() - begin > limit:
            break
    return {name: median(found) for name, found in times.items()}


def cache_bytes() -> int:
    """Size of the L2: tensors that show the memory's speed are larger than four of these."""
    return torch.cuda.get_device_properties(0).L2_cache_size if GPU else 1 << 18


def large(bytes_each: int) -> int:
    """So many bytes, but at least four times what the cache holds."""
    return max(bytes_each if GPU else 1 << 18, 4 * cache_bytes())
