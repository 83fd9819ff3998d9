# SPDX-License-Identifier: Apache-2.0
"""Clock and byte counts of jobs of ci/bench that run on several hosts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

_SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")


def timed(call: Callable[[], object]) -> tuple[float, int]:
    """Seconds of the slowest rank, and bytes that left the first rank's host, with all headers."""
    dist.barrier()
    sent, start = _sent_bytes(), time.perf_counter()
    call()
    took = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item(), _sent_bytes() - sent


def _sent_bytes() -> int:
    return int(_SENT.read_text()) if _SENT.exists() else 0


class Measurements:
    """Rounds of several contestants; the first of each warms up."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[list[float], int]] = {}

    def add(self, who: str, call: Callable[[], object], *, counts: bool = True) -> None:
        seconds, sent = timed(call)
        if counts:
            times, _ = self._found.get(who, ([], 0))
            self._found[who] = ([*times, seconds], sent)

    def print_result(self, **others: object) -> None:
        if dist.get_rank() == 0:
            print("RESULT " + json.dumps({**self._found, **others}), flush=True)
