# SPDX-License-Identifier: Apache-2.0
"""Sharding over the ranks of a host against sharding over all, on two hosts whose network is slow:
a vision transformer, four micro-steps an optimizer step, ours and the peers by turns; and
examples/vit_sharded as a user starts it, with the table of the article it comes from."""

from __future__ import annotations

import json
import re

from benchmark import ROOT, Result, middle, spread
from wire import RATE_MBIT, Layout, peers_python, run_job, run_on

LAYOUT = Layout(2, 2)
ROUNDS, ROWS, EXAMPLE_STEPS = 5, 8, 12
FULL = (
    f"an optimizer step of 4 micro-steps, {LAYOUT.text} at {RATE_MBIT} Mbit/s, shards within a "
    "host: a fifth of the time of full sharding by FSDP2 and by DeepSpeed ZeRO-3"
)
HSDP = (
    f"the same: FSDP2's HSDP takes at least 1.1 times as long, at equal bytes ({RATE_MBIT} Mbit/s)"
)
SAME = "losses of all steps: within 1e-5 of FSDP2's and DeepSpeed's"
EXAMPLE = "examples/vit_sharded: a step with degree 2 takes less time than with degree 4"


def contest() -> list[Result]:
    peers = ["FSDP2, HSDP", "FSDP2, full shard", "DeepSpeed, ZeRO-3"]
    if peers_python() is None:
        print("mics: without DeepSpeed: ci/peers installs it")
        peers.pop()
    found = run_job(
        LAYOUT, "micro_steps_job.py", ROUNDS, ROWS, "ours, k=2", "ours, k=4", *peers, peers=True
    )
    losses = found.pop("losses")
    ours = middle(found["ours, k=2"][0])
    rows: list[tuple[str, ...]] = [(LAYOUT.text, "ms a step (min-max)", "MB leave a host", "gain")]
    for who, (times, sent) in found.items():
        rows.append((who, spread(times), f"{sent / 1e6:.2f}", f"{middle(times) / ours:.2f}"))
    results = [
        Result("mics-" + peer.split(",")[0].lower(), ours, middle(found[peer][0]), 1 / 5, FULL)
        for peer in peers[1:]
    ]
    hsdp = Result("mics-hsdp", ours, middle(found[peers[0]][0]), 1 / 1.1, HSDP, rows)
    worst = max(
        abs(mine - theirs) / abs(theirs)
        for who in ("ours, k=2", "ours, k=4")
        for peer in peers
        for both in zip(losses[who], losses[peer], strict=True)
        for mine, theirs in zip(*both, strict=True)
    )
    return [hsdp, *results, Result("mics-losses", worst, 1e-5, 1.0, SAME)]


def example() -> Result:
    seconds: dict[int, float] = {}
    for degree in (4, 2):
        settings = {
            "ddp": True,
            "sharded_data_parallel_degree": degree,
            "sdp_param_persistence_threshold": 64,
        }
        output = run_on(
            LAYOUT,
            [str(ROOT / "examples/vit_sharded/train.py"), "--steps", str(EXAMPLE_STEPS)],
            SM_HP_MP_PARAMETERS=json.dumps(settings),
        )
        seconds[degree] = number_in(r"average step time: (\S+)", output)
        persistent = number_in(r"'persistent': (\d+)", output)
        shards = number_in(r"'parameters': (\d+)", output)
        assert persistent < 0.05 * degree * shards, "at least 95 % of the elements are sharded"
    rows = [
        ("examples/vit_sharded", *(f"degree {degree}" for degree in seconds)),
        ("average step time, s", *(f"{one:.4f}" for one in seconds.values())),
    ]
    return Result("mics-example", seconds[2], seconds[4], 1.0, EXAMPLE, rows)


def number_in(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    assert found is not None, output
    return float(found[1])


GOAL = FULL


def run() -> list[Result]:
    return [*contest(), example()]
