# SPDX-License-Identifier: Apache-2.0
"""Gradients that meet the other replicas once an optimizer step, and once a micro-step."""

from __future__ import annotations

from benchmark import Result, middle, spread
from wire import RATE_MBIT, Layout, run_job

LAYOUT = Layout(2, 2)
ROUNDS, ROWS = 5, 1
GOAL = (
    f"4 micro-steps, {LAYOUT.text} at {RATE_MBIT} Mbit/s, shards within a host: exchanging "
    "gradients between hosts in each takes at least 2.5 times as long as in the last"
)


def run() -> Result:
    often, seldom = "ours, k=2, hop 2 every micro-step", "ours, k=2"
    found = run_job(LAYOUT, "micro_steps_job.py", ROUNDS, ROWS, seldom, often)
    rows: list[tuple[str, ...]] = [(LAYOUT.text, "ms a step (min-max)", "MB leave a host")]
    median = {}
    for who in (seldom, often):
        times, sent = found[who]
        median[who] = middle(times)
        rows.append((who, spread(times), f"{sent / 1e6:.2f}"))
    rows.append(("gain", f"{median[often] / median[seldom]:.2f}", ""))
    return Result("defer", median[seldom], median[often], 1 / 2.5, GOAL, rows)
