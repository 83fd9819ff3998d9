# SPDX-License-Identifier: Apache-2.0
"""A step of replicas between two hosts with our averaging of gradients and with PyTorch's DDP."""

from __future__ import annotations

from benchmark import Result, middle, spread
from wire import BYTES_PER_SECOND, RATE_MBIT, Layout, run_job

LAYOUT = Layout(2, 1)
LAYER_BYTES = 1 << 20  # as in the job
WIRE_SHARE = 2 / 3  # share of the backward: enough to hide all of it but the last bucket
GOAL = (
    f"an emulated backward 1.5 times as long as its gradients take ({LAYOUT.text} at "
    f"{RATE_MBIT} Mbit/s): a step no longer than with DDP"
)
EXPOSED = "the same: what of the gradients' time on the wire the backward does not hide, in 15 %"


def run() -> list[Result]:
    wire = LAYER_BYTES / BYTES_PER_SECOND
    found = run_job(LAYOUT, "reducer_job.py", wire / WIRE_SHARE)
    layers, size = found.pop("layers"), found.pop("bytes")
    assert size == LAYER_BYTES
    rows: list[tuple[str, ...]] = [("a step, emulated", "ms (min-max)", "MB leave a host")]
    median = {}
    for who, (times, sent) in found.items():
        median[who] = middle(times)
        rows.append((who, spread(times), f"{sent / 1e6:.2f}"))
    exposed = median["ours"] - median["no averaging"]
    return [
        Result("reducer", median["ours"], median["DDP"], 1.0, GOAL, rows),
        Result("reducer-exposed", exposed, layers * wire, 0.15, EXPOSED),
    ]
