# SPDX-License-Identifier: Apache-2.0
"""The measured numbers as a table, one line a host."""

from __future__ import annotations

import statistics

from smdistributed.check.link_probe import Link
from smdistributed.check.outliers import Numbers, by_host

_DEVICES = {"cpu": "", "cuda": "GPU to GPU "}


def table(numbers: Numbers) -> str:
    """Rates and latencies are medians of a host; speeds of computing are its slowest rank's."""
    rows = {"host": list(numbers.hosts())}
    ranks = list(numbers.hosts().values())
    rows["ranks"] = [str(len(of)) for of in ranks]
    rows["device"] = [of[0].device for of in ranks]
    rows["GFLOP/s a rank"] = [f"{min(one.flops for one in of) / 1e9:.3g}" for of in ranks]
    for device, links in numbers.within.items():
        rows[f"{_DEVICES[device]}in a host"] = _links(numbers, links, 1e-9, "GB/s")
    for device, links in numbers.across.items():
        rows[f"{_DEVICES[device]}to other hosts"] = _links(numbers, links, 8e-9, "Gbit/s")
    if clocks := numbers.across.get("cpu"):
        ahead = {numbers.host(link.target): link.clock_ahead for link in clocks if link.source == 0}
        rows["clock"] = [f"{ahead.get(host, 0) * 1e3:+.0f} ms" for host in rows["host"]]
    rows["/dev/shm"] = [f"{of[0].shared_memory_bytes / 2**20:.0f} MiB" for of in ranks]
    rows["free"] = [f"{min(of[0].free_bytes.values(), default=0) / 1e9:.0f} GB" for of in ranks]
    widths = [max(map(len, (name, *cells))) for name, cells in rows.items()]
    lines = [list(rows), *map(list, zip(*rows.values(), strict=True))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _links(numbers: Numbers, links: list[Link], factor: float, unit: str) -> list[str]:
    own = by_host(numbers, links, "source")
    cells = []
    for host in numbers.hosts():
        if host not in own:
            cells.append("-")
            continue
        rate = statistics.median_high(link.bytes_per_second for link in own[host])
        latency = statistics.median_low(link.latency for link in own[host])
        cells.append(f"{rate * factor:.2g} {unit}, {latency * 1e6:.0f} us")
    return cells
