# SPDX-License-Identifier: Apache-2.0
"""Memory of a rank in sharded training, against the formula and the peers."""

from __future__ import annotations

from benchmark import Result, run_ranks
from wire import peers_python

RANKS = 4
LAYER = 1 << 20  # elements
GOAL = "resident memory that sharded training takes of a rank: at most the formula and 10 %"
PEER = "the same: at most that of FSDP2 and of DeepSpeed ZeRO-3"


def formula(elements: int) -> int:
    """Bytes: parameters, gradients and two moments in 32 bits; three whole layers; two buckets of
    gradients."""
    return 16 * elements // RANKS + 3 * 4 * LAYER + 2 * 4 * LAYER


def run() -> list[Result]:
    contestants = {"ours": None, "fsdp": None}
    if (python := peers_python()) is not None:
        contestants["deepspeed"] = python
    else:
        print("memory: without DeepSpeed: ci/peers installs it")
    found = {
        who: run_ranks(RANKS, "memory_job.py", who, python=python)
        for who, python in contestants.items()
    }
    limit = formula(found["ours"]["elements"])
    rows: list[tuple[str, ...]] = [("4 ranks, 25 million parameters", "MB a rank")]
    rows += [(who, f"{one['bytes'] / 1e6:.1f}") for who, one in found.items()]
    rows.append(("formula", f"{limit / 1e6:.1f}"))
    ours = found.pop("ours")["bytes"]
    peer = min(one["bytes"] for one in found.values())
    return [
        Result("memory", ours, limit, 1.1, GOAL, rows),
        Result("memory-peers", ours, peer, 1.0, PEER),
    ]
