# SPDX-License-Identifier: Apache-2.0
"""A call of an empty module on another rank against a tensor sent there and back by gloo alone, and
against a call by torch.distributed.rpc. Between hosts, where libfabric carries it: small and large
tensors, at what this machine's loop of network interfaces can do and over a slow wire."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks
from wire import RATE_MBIT, Layout, run_job

LIMIT = 2.0
GOAL = f"round trip of a call to another rank: at most {LIMIT:g} times a raw gloo pair's"
RPC = "the same: less than a call by torch.distributed.rpc"
WIRE = "round trip of a call between hosts, {0}, {1}: at most {2:g} times a raw gloo pair's"
#: Limit between hosts: one more thread than on a host wakes up for each message.
HOSTS_LIMIT = 3.0
#: Limits of large tensors, which get new memory in each call, where gloo's pair keeps its own.
COPY_LIMIT, WIRE_LIMIT = 1.6, 1.05
NUMBERS_A_KIB = 256


def run() -> list[Result]:
    times = run_ranks(2, "request_job.py", 16, 200, 30, "rpc")
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return [
        Result("request", medians["ours"], medians["gloo"], LIMIT, GOAL, table(times)),
        Result("request-rpc", medians["ours"], medians["rpc"], 1.0, RPC),
        between_hosts(0, "64 B", 16, 200, HOSTS_LIMIT),
        between_hosts(0, "4 MiB", 4096 * NUMBERS_A_KIB, 10, COPY_LIMIT),
        between_hosts(RATE_MBIT, "64 B", 16, 100, HOSTS_LIMIT),
        between_hosts(RATE_MBIT, "1 MiB", 1024 * NUMBERS_A_KIB, 3, WIRE_LIMIT),
    ]


def between_hosts(rate_mbit: int, size: str, numbers: int, calls: int, limit: float) -> Result:
    layout = Layout(hosts=2, ranks_each=1, rate_mbit=rate_mbit)
    words = ("request_job.py", numbers, calls, 15)
    times = run_job(layout, *words)
    # The cost of codes, over what is unpickled and over sizes, made and checked twice a call.
    times["ours without secret"] = run_job(layout, *words, SMP_JOB_SECRET="")["ours"]
    rate = f"{rate_mbit} Mbit/s" if rate_mbit else "unlimited"
    name = f"request-hosts-{rate_mbit or 'unlimited'}-{size.replace(' ', '')}"
    ours, gloo = (statistics.median(times[who]) for who in ("ours", "gloo"))
    return Result(name, ours, gloo, limit, WIRE.format(size, rate, limit), table(times))


def table(times: dict[str, list[float]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("round trip, us", "min", "median", "max")]
    for name, seconds in times.items():
        figures = (min(seconds), statistics.median(seconds), max(seconds))
        rows.append((name, *(f"{1e6 * figure:.0f}" for figure in figures)))
    return rows
