# SPDX-License-Identifier: Apache-2.0
"""Gathering a unit of parameters between hosts whose network is slow: by host, as the library does,
in three steps of gloo, in one, and by gloo's ring of all ranks."""

from __future__ import annotations

from benchmark import Result, middle, spread
from wire import RATE_MBIT, Layout, run_job

GOAL = (
    f"gathering 4 MiB of parameters between hosts at {RATE_MBIT} Mbit/s: the best flat gather's "
    "time over ours at least 0.9 of what the bytes allow"
)
LAYOUTS = (Layout(2, 2), Layout(2, 4))


def between(layout: Layout) -> Result:
    found = run_job(layout, "gather_job.py")
    rows: list[tuple[str, ...]] = [(layout.text, "ms (min-max)", "MB leave a host")]
    for who, (times, sent) in found.items():
        rows.append((who, spread(times), f"{sent / 1e6:.2f}"))
    median = {who: middle(times) for who, (times, _) in found.items()}
    ours = median.pop("ours")
    peer = min(median["ours, one step"], median["gloo's ring"])
    rows.append(("gain, and what the bytes allow", f"{peer / ours:.2f}", f"{layout.byte_limit}"))
    name = f"gather-{layout.hosts}x{layout.ranks_each}"
    return Result(name, ours, peer, 1 / (0.9 * layout.byte_limit), GOAL, rows)


def run() -> list[Result]:
    return [between(layout) for layout in LAYOUTS]
