# SPDX-License-Identifier: Apache-2.0
"""Scripts of SMP v2 (torch.sagemaker): a step of FSDP1 between hosts whose network is slow, over
smddp and gloo; how long a save in the background keeps the training waiting, and how much slower
steps are beside it; what split layers send."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmark import Result, middle, run_ranks, spread, timed_saves
from wire import RATE_MBIT, Layout, run_job

LAYOUT = Layout(2, 2)
STEP = 0.6
GOAL = (
    f"step of FSDP1, shards over {LAYOUT.text} at {RATE_MBIT} Mbit/s, over smddp: at most {STEP:g} "
    "of gloo's"
)
# There the gradients of a shard cross the wire once, whoever sends them.
WITHIN = "the same with shards within a host, where both send the same bytes: at most gloo's"

ROUNDS = 3
STALL, BESIDE = 1.2, 1.05
STALL_GOAL = f"stall of async_save, its end included: at most {STALL:g} times a copy of the state"
BESIDE_GOAL = f"step beside the write: at most {BESIDE:g} times a step without one"
TENSOR_RANKS = 4
SENT_GOAL = (
    f"bytes of split layers on {TENSOR_RANKS} ranks: at most those of torch's Colwise/Rowwise plan"
)


def step(name: str, degree: int, limit: float, goal: str) -> Result:
    found = run_job(LAYOUT, "v2_step_job.py", degree)
    rows = [(f"{LAYOUT.text}, shards of {degree}", "ms (min-max)", "MB leave a host")]
    rows += [(who, spread(times), f"{sent / 1e6:.2f}") for who, (times, sent) in found.items()]
    ours, peer = (middle(found[who][0]) for who in ("smddp", "gloo"))
    return Result(name, ours, peer, limit, goal, rows)


def saves() -> list[Result]:
    middles, rows = timed_saves("v2_save_job.py", ROUNDS)
    alone, beside = middles["step alone"], middles["step beside"]
    return [
        Result("v2-save", middles["stall"], middles["copy"], STALL, STALL_GOAL, rows),
        Result("v2-save-beside", beside, alone, BESIDE, BESIDE_GOAL),
    ]


def split_layers() -> Result:
    with tempfile.TemporaryDirectory() as folder:
        sent = run_ranks(TENSOR_RANKS, "v2_tp_job.py", Path(folder))
    rows = [("bytes a rank sends in a step of Llama", "")]
    rows += [(who, str(sent[who])) for who in ("ours", "torch")]
    return Result("v2-tp-bytes", sent["ours"], sent["torch"], 1.0, SENT_GOAL, rows)


def run() -> list[Result]:
    return [
        step("v2-over-hosts", LAYOUT.ranks, STEP, GOAL),
        step("v2-within-host", LAYOUT.ranks_each, 1.0, WITHIN),
        *saves(),
        split_layers(),
    ]
