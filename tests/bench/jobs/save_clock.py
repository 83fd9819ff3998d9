# SPDX-License-Identifier: Apache-2.0
"""Clock of jobs of ci/bench that save beside training."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Seconds of each thing by name, of every round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - begin)

    def add(self, name: str, *seconds: float) -> None:
        self.seconds.setdefault(name, []).extend(seconds)

    def copy_and_steps(
        self, state: Callable[[], list[torch.Tensor]], step: Callable[[], object]
    ) -> None:
        """Times what saves are compared with: a copy of the state, and steps without a save."""
        with self.timed("copy"):
            copies = [tensor.clone() for tensor in state()]
        del copies
        for _ in range(3):
            with self.timed("step alone"):
                step()

    def steps_beside(
        self, name: str, step: Callable[[], object], is_done: Callable[[], bool]
    ) -> None:
        """Times steps that end before ``is_done``, and the first one in any case."""
        times: list[float] = []
        while True:
            begin = time.perf_counter()
            step()
            took = time.perf_counter() - begin
            if is_done() and times:
                break
            times.append(took)
        self.add(name, *times)

    def print_result(self, size: int) -> None:
        """``size`` of the state, in bytes."""
        print("RESULT " + json.dumps({"bytes": size, "seconds": self.seconds}), flush=True)
