# SPDX-License-Identifier: Apache-2.0
"""Fetching parameters ahead, where computing takes as long as the wire does: emulated layers, which
sleep, between two hosts."""

from __future__ import annotations

from benchmark import Result, middle, spread
from wire import BYTES_PER_SECOND, FRAMING, RATE_MBIT, Layout, run_job

# A wire gives nothing for having been idle. With 64 KB at once, 5 of the 22 ms that a layer's bytes
# take are free for a run that leaves the wire idle while it computes.
LAYOUT = Layout(2, 1, credit_kb=16)
LAYER_BYTES = 1 << 19  # as in the job
GOAL = (
    f"24 layers whose computing takes as long as the wire ({LAYOUT.text} at {RATE_MBIT} Mbit/s): "
    "a forward without fetching ahead takes at least 1.8 times as long as with it"
)
PEER = "the same, a training step: no longer than FSDP2's"


def run() -> list[Result]:
    seconds = FRAMING * LAYOUT.share_between_hosts * LAYER_BYTES / BYTES_PER_SECOND
    found = run_job(LAYOUT, "prefetch_job.py", seconds)
    layers, size = found.pop("layers"), found.pop("bytes")
    assert size == LAYER_BYTES
    rows: list[tuple[str, ...]] = [("emulated", "ms (min-max)", "MB leave a host", "ms of sleep")]
    median = {}
    for who, (times, sent) in sorted(found.items()):
        median[who] = middle(times)
        sleep = layers * seconds * (1 if who.startswith("forward") else 3)
        rows.append((who, spread(times), f"{sent / 1e6:.2f}", f"{1e3 * sleep:.0f}"))
    alone = median["forward: ours, nothing ahead"]
    return [
        Result("prefetch", median["forward: ours"], alone, 1 / 1.8, GOAL, rows),
        Result("prefetch-step", median["step: ours"], median["step: FSDP2"], 1.0, PEER),
    ]
