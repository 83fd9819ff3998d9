# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of 2 GB of state: how long a save keeps the training waiting, how much slower steps
are beside it, and what a save that blocks and a load take, against a copy of the state in memory,
dd on the same disk (writing with fsync, and reading), and torch.distributed.checkpoint's
asynchronous save."""

from __future__ import annotations

from benchmark import Result, timed_saves

ROUNDS = 3
COPY, SHARE, BESIDE, DISK = 1.2, 0.05, 1.05, 1.25
GOAL = f"stall of a save in the background: at most {COPY:g} times a copy of the state in memory"
GOALS = {
    "save-share": f"the same: at most {SHARE:g} of a save that blocks",
    "save-beside": f"step beside the write: at most {BESIDE:g} times a step without one",
    "save-blocking": f"save that blocks: at most {DISK:g} times dd with fsync of as many bytes",
    "save-load": f"load: at most {DISK:g} times dd with fsync of as many bytes",
    "save-load-read": f"load: at most {DISK:g} times dd reading as many bytes past the cache",
    "save-dcp": "step beside the write: less than beside DCP's asynchronous save",
}


def run() -> list[Result]:
    middles, rows = timed_saves("save_job.py", ROUNDS)
    pairs = [
        ("save-share", "stall", "save", SHARE),
        ("save-beside", "step beside ours", "step alone", BESIDE),
        ("save-blocking", "save", "dd", DISK),
        ("save-load", "load", "dd", DISK),
        ("save-load-read", "load", "dd reading", DISK),
        ("save-dcp", "step beside ours", "step beside DCP", 1.0),
    ]
    return [
        Result("save", middles["stall"], middles["copy"], COPY, GOAL, rows),
        *(Result(name, middles[ours], middles[peer], limit, GOALS[name])
          for name, ours, peer, limit in pairs),
    ]  # fmt: skip
