# SPDX-License-Identifier: Apache-2.0
"""A call of an empty module on another rank against a tensor sent there and back by gloo alone, and
against a call by torch.distributed.rpc."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks

LIMIT = 2.0
GOAL = f"round trip of a call to another rank: at most {LIMIT:g} times a raw gloo pair's"
RPC = "the same: less than a call by torch.distributed.rpc"


def run() -> list[Result]:
    times = run_ranks(2, "request_job.py")
    rows: list[tuple[str, ...]] = [("round trip, us", "min", "median", "max")]
    for name, seconds in times.items():
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        rows.append((name, *(f"{1e6 * figure:.0f}" for figure in figures)))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return [
        Result("request", medians["ours"], medians["gloo"], LIMIT, GOAL, rows),
        Result("request-rpc", medians["ours"], medians["rpc"], 1.0, RPC),
    ]
