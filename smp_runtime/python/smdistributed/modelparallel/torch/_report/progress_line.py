# SPDX-License-Identifier: Apache-2.0
"""What the live line says, within a number of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed import _runtime

COLUMNS = 120


def progress_line(
    report: Mapping[str, Any],
    *,
    total: int | None = None,
    seconds_left: float | None = None,
    pipeline: bool = True,
    replicas: int = 1,
    columns: int = COLUMNS,
) -> str:
    """Of a training step. What does not fit is left out: first the smallest amounts of memory.

    Args:
        report: what the metrics have of the step.
        total: how many steps the job makes; None: not known. So for ``seconds_left``.
        pipeline: whether there is one, whose use tells something.
        replicas: how many there are.

    >>> report = {"step": 12, "loss": 0.4231, "loss_ranks": 2, "samples_per_second": 812.4,
    ...           "pipeline_use": 0.713, "data_wait_share": 0.03, "peak_memory_bytes": 1.2e9,
    ...           "memory_bytes": {"gradients": 1e8, "parameters": 2e8, "live": 0}}
    >>> print(progress_line(report, total=400, seconds_left=400, replicas=2, columns=78))
    step 12 of 400: loss 0.4231, 812 samples/s, 7 min left, pipeline 71 %, …
    >>> progress_line(report, columns=130).split(", ", 3)[3]
    'waiting for data 3 %, peak 1.1 GiB (parameters 190.7 MiB, gradients 95.4 MiB)'
    """
    of_how_many = f" of {total}" if total is not None and report["step"] <= total else ""
    rate, use = report["samples_per_second"], report["pipeline_use"]
    computed = report.get("flops_utilization")
    parts = [
        "" if report["loss"] is None else f"loss {report['loss']:.4g}" + _share(report, replicas),
        f"{rate:.0f} samples/s" if rate >= 10 else f"{rate:.2g} samples/s" if rate > 0 else "",
        "" if seconds_left is None else f"{_duration(seconds_left)} left",
        "" if not pipeline or use is None else f"pipeline {100 * use:.0f} %",
        "" if computed is None else f"{100 * computed:.0f} % of the peak FLOP/s",
        f"waiting for data {100 * report['data_wait_share']:.0f} %",
    ]
    return _fit(f"step {report['step']}{of_how_many}: ", parts, _memory(report), columns)


def evaluation_line(
    step: int, steps: int, loss: float | None, replicas: int, columns: int = COLUMNS
) -> str:
    """Of the ``steps`` of an evaluation so far, which follows training step ``step``.

    >>> evaluation_line(12, 3, 0.51234, replicas=1)
    'evaluation after step 12: loss 0.5123, mean of 3 steps'
    >>> evaluation_line(0, 1, None, replicas=2)
    'evaluation before step 1: 1 step of the first replica, which returned no loss'
    """
    after = f"after step {step}" if step else "before step 1"
    counted = f"{steps} step{'s' if steps > 1 else ''}"
    whose = " of the first replica" if replicas > 1 else ""
    if loss is None:
        text = f"{counted}{whose}, which returned no loss"
    else:
        text = f"loss {loss:.4g}, mean of {counted}{whose}"
    return _cut(f"evaluation {after}: {text}", columns)


def _share(report: Mapping[str, Any], replicas: int) -> str:
    return " (first replica)" if report["loss_ranks"] == 1 and replicas > 1 else ""


def _memory(report: Mapping[str, Any]) -> list[str]:
    """Ways to say it, the longest first."""
    peak = f"peak {_runtime.human_bytes(int(report['peak_memory_bytes']))}"
    held = sorted(report["memory_bytes"].items(), key=lambda item: -item[1])
    texts = [f"{n.replace('_', ' ')} {_runtime.human_bytes(int(s))}" for n, s in held if s > 0]
    whole = [f"{peak} ({', '.join(texts)})"] if texts else []
    shorter = [f"{peak} ({', '.join(texts[:n])}, …)" for n in range(len(texts) - 1, 0, -1)]
    return [*whole, *shorter, peak]


def _fit(head: str, parts: list[str], ends: list[str], columns: int) -> str:
    """As many of the parts as there is room for, then the longest end that leaves none out."""
    said = [part for part in parts if part]
    for end in [*ends, ""]:
        line = head + ", ".join([*said, end] if end else said)
        if len(line) <= columns:
            return line
    while len(said) > 1:
        said.pop()
        line = head + ", ".join([*said, "…"])
        if len(line) <= columns:
            return line
    return _cut(line, columns)


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else line[: max(0, columns - 1)] + "…"


def _duration(seconds: float) -> str:
    """
    >>> [_duration(seconds) for seconds in (0.4, 89, 91, 5399, 5401, 172_800)]
    ['0 s', '89 s', '2 min', '90 min', '1 h 30 min', '2 d 0 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if seconds < 5400:
        return f"{minutes} min"
    if seconds < 172_800:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
