# SPDX-License-Identifier: Apache-2.0
"""Scripts of SMP v2 (torch.sagemaker): a step of FSDP1 between hosts whose network is slow, over
smddp and gloo."""

from __future__ import annotations

from benchmark import Result, middle, spread
from wire import RATE_MBIT, Layout, run_job

LAYOUT = Layout(2, 2)
STEP = 0.6
GOAL = (
    f"step of FSDP1, shards over {LAYOUT.text} at {RATE_MBIT} Mbit/s, over smddp: at most {STEP:g} "
    "of gloo's"
)
# There the gradients of a shard cross the wire once, whoever sends them.
WITHIN = "the same with shards within a host, where both send the same bytes: at most gloo's"


def step(name: str, degree: int, limit: float, goal: str) -> Result:
    found = run_job(LAYOUT, "v2_step_job.py", degree)
    rows = [(f"{LAYOUT.text}, shards of {degree}", "ms (min-max)", "MB leave a host")]
    rows += [(who, spread(times), f"{sent / 1e6:.2f}") for who, (times, sent) in found.items()]
    ours, peer = (middle(found[who][0]) for who in ("smddp", "gloo"))
    return Result(name, ours, peer, limit, goal, rows)


def run() -> list[Result]:
    return [
        step("v2-over-hosts", LAYOUT.ranks, STEP, GOAL),
        step("v2-within-host", LAYOUT.ranks_each, 1.0, WITHIN),
    ]
