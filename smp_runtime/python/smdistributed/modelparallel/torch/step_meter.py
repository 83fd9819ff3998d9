# SPDX-License-Identifier: Apache-2.0
"""How the steps of a job go: a line for people, a JSON object a step for machines."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from smdistributed.modelparallel.torch import log
from smdistributed.modelparallel.torch.step_output import StepOutput

_LINE_INTERVAL = 1.0  # seconds between two lines where lines stay, in files and log services


class StepMeter:
    """Times the steps of the first rank.

    Args:
        replicas: how many batches the job takes at a time; each counts as large as this rank's.
        metrics_file: gets one JSON object a step, a line each; empty for none. Appended to.
        progress: whether stderr gets a line: on a terminal one that is rewritten each step, else
            one a second at most.
        ledger: what the model's state takes here, as ``smp.memory_summary`` says.

    A step lasts from the end of the step before it; what of that time is spent neither in a step
    nor in an optimizer counts as waiting for data.
    """

    def __init__(
        self,
        replicas: int,
        metrics_file: str,
        progress: bool,
        ledger: Callable[[], Mapping[str, int]],
    ) -> None:
        self._replicas, self._ledger = replicas, ledger
        self._metrics = Path(metrics_file) if metrics_file else None
        self._progress = progress
        self._steps = 0
        self._begun = self._ended = self._busy_until = time.perf_counter()
        self._last_line = float("-inf")
        self._hook = register_optimizer_step_post_hook(self._optimizer_stepped)

    def close(self) -> None:
        """Forgets the job; ends the line on a terminal."""
        self._hook.remove()
        if self._progress and self._steps and sys.stderr.isatty():
            print(file=sys.stderr)

    def step_begins(self) -> None:
        self._begun = time.perf_counter()

    def step_ended(self, use: Mapping[str, float], batch_size: int, outputs: Any) -> None:
        """``use`` is the engine's account of the step, ``outputs`` what the step returned."""
        now = time.perf_counter()
        seconds = now - self._ended
        self._steps += 1
        report: dict[str, Any] = {
            "step": self._steps,
            "time": time.time(),
            "seconds": seconds,
            "global_batch_size": batch_size * self._replicas,
            "samples_per_second": batch_size * self._replicas / seconds,
            "pipeline_use": use["group_use"],
            "data_wait_share": max(0.0, self._begun - self._busy_until) / seconds,
            "peak_memory_bytes": _peak_memory(),
            "messages_sent": int(use["messages_sent"]),
            "bytes_sent": int(use["bytes_sent"]),
        }
        self._ended = self._busy_until = now
        shows = self._progress and self._line_is_due(now)
        if shows or self._metrics:
            report["loss"] = _loss(outputs)  # on a GPU this waits for the step
            report["memory_bytes"] = dict(self._ledger())
        if shows:
            self._show(report)
        if self._metrics:
            self._append(report)

    def _optimizer_stepped(self, *_: Any) -> None:
        self._busy_until = time.perf_counter()

    def _line_is_due(self, now: float) -> bool:
        return sys.stderr.isatty() or now - self._last_line >= _LINE_INTERVAL

    def _show(self, report: Mapping[str, Any]) -> None:
        self._last_line = self._ended
        text = progress_line(report)
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            log.info(text)

    def _append(self, report: Mapping[str, Any]) -> None:
        assert self._metrics is not None
        try:
            with self._metrics.open("a") as file:
                file.write(json.dumps(report) + "\n")
        except OSError as error:
            log.warning(f"SMP_METRICS: no more metrics: {error}")
            self._metrics = None


def progress_line(report: Mapping[str, Any]) -> str:
    """
    >>> line = progress_line({"step": 12, "loss": 0.4231, "samples_per_second": 812.4,
    ...                       "pipeline_use": 0.713, "data_wait_share": 0.03,
    ...                       "peak_memory_bytes": 1.2e9,
    ...                       "memory_bytes": {"parameters": 2e8, "gradients": 1e8, "live": 0}})
    >>> line.split(", peak")[0]
    'step 12: loss 0.4231, 812 samples/s, pipeline 71 %, waiting for data 3 %'
    >>> line.split(", peak")[1]
    ' 1.2 GB (parameters 200.0 MB, gradients 100.0 MB)'
    """
    held = ", ".join(f"{name.replace('_', ' ')} {_size(size)}"
                     for name, size in report["memory_bytes"].items() if size > 0)  # fmt: skip
    loss = "" if report["loss"] is None else f"loss {report['loss']:.4g}, "
    return (
        f"step {report['step']}: {loss}{report['samples_per_second']:.0f} samples/s, "
        f"pipeline {100 * report['pipeline_use']:.0f} %, "
        f"waiting for data {100 * report['data_wait_share']:.0f} %, "
        f"peak {_size(report['peak_memory_bytes'])}{f' ({held})' if held else ''}"
    )


def _size(count: float) -> str:
    """
    >>> [_size(count) for count in (1595392, 512, 5e12)]
    ['1.6 MB', '512 B', '5000.0 GB']
    """
    for unit, of_one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= of_one:
            return f"{count / of_one:.1f} {unit}"
    return f"{count:.0f} B"


def _loss(outputs: Any) -> float | None:
    """Mean over the microbatches of what is named loss, or is the first scalar returned."""
    if isinstance(outputs, Mapping):
        outputs = outputs.get("loss", next(iter(outputs.values()), None))
    elif isinstance(outputs, (tuple, list)):
        outputs = outputs[0] if outputs else None
    if not isinstance(outputs, StepOutput) or outputs.outputs[0].numel() != 1:
        return None
    if outputs.outputs[0].is_complex():
        return None
    return float(outputs.reduce_mean())


def _peak_memory() -> int:
    """Bytes: of the GPU where there is one, else of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
