# SPDX-License-Identifier: Apache-2.0
"""Balance of the links of hosts when tensors differ much in size: DDP with an embedding of 64 MB
and small layers, against servers that own whole tensors."""

from __future__ import annotations

from benchmark import Result
from wire import Layout, run_job

LIMIT = 1.02
GOAL = (
    "a step of DDP with an embedding of 64 MB, bytes on each host's link: the most over the mean "
    f"at most {LIMIT:g}, sent and received"
)
LAYOUTS = (Layout(2, 2), Layout(3, 2), Layout(4, 1))


def imbalance(links: list[float]) -> float:
    return max(links) / (sum(links) / len(links))


def of_servers(tensors: list[int], hosts: int) -> list[float]:
    """Bytes that each host sends if it serves whole tensors, largest first to whoever has least:
    its sums to all others, and what others serve to them."""
    served = [0] * hosts
    for size in sorted(tensors, reverse=True):
        served[served.index(min(served))] += size
    return [(hosts - 1) * own + sum(tensors) - own for own in served]


def measured(layout: Layout) -> list[Result]:
    found = run_job(layout, "balance_job.py")
    sent, received = zip(*found["hosts"], strict=True)
    servers = of_servers(found["tensors"], layout.hosts)
    rows: list[tuple[str, ...]] = [(layout.text, "sent MB", "received MB", "by tensor: sent MB")]
    for host in range(layout.hosts):
        links = (sent[host], received[host], servers[host])
        rows.append((f"host {host}", *(f"{link / 1e6:.1f}" for link in links)))
    ratios = [imbalance(list(links)) for links in (sent, received, servers)]
    rows.append(("most over mean", *(f"{ratio:.3f}" for ratio in ratios)))
    name = f"balance-{layout.hosts}x{layout.ranks_each}"
    return [
        Result(f"{name}-sent", max(sent), sum(sent) / len(sent), LIMIT, GOAL, rows),
        Result(f"{name}-received", max(received), sum(received) / len(received), LIMIT, GOAL),
    ]


def run() -> list[Result]:
    return [result for layout in LAYOUTS for result in measured(layout)]
