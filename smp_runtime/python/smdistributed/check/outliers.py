# SPDX-License-Identifier: Apache-2.0
"""The numbers of all ranks: as a table, and the outliers in them, by pure functions."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from smdistributed.check.host_facts import RankFacts
from smdistributed.check.link_probe import Link

# Shares of the others' median. Ranks compute at the same time and alike; links vary with what else
# the machine does, where ranks share CPUs by a factor of two.
_FLOPS_SHARE = 0.6
_RATE_SHARE = 0.4
_LATENCY_FACTOR = 4.0
_LATENCY_FLOOR = 200e-6  # [s] above the others: less is the scheduler's
# One TCP stream fills a tenth of any interface.
_INTERFACE_SHARE = 0.1
_CLOCK_SECONDS = 1.0  # logs of hosts are read side by side
_FREE_BYTES = 10**9
_SHARED_MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class Numbers:
    """All that was measured, by rank; `within` and `across` hosts by device: cpu, cuda."""

    facts: list[RankFacts]
    within: dict[str, list[Link]] = field(default_factory=dict)
    across: dict[str, list[Link]] = field(default_factory=dict)

    def host(self, rank: int) -> str:
        return self.facts[rank].host

    def hosts(self) -> dict[str, list[RankFacts]]:
        """Ranks of each host, in the order of ranks."""
        result: dict[str, list[RankFacts]] = {}
        for one in self.facts:
            result.setdefault(one.host, []).append(one)
        return result

    def first_ranks(self) -> list[RankFacts]:
        """One rank of each host, for the facts that all its ranks share."""
        return [ranks[0] for ranks in self.hosts().values()]


def find_outliers(numbers: Numbers) -> list[str]:
    """Returns a sentence for each outlier, with its number and that of the others."""
    rules: tuple[Callable[[Numbers], Iterator[str]], ...] = (
        _slow_ranks,
        _slow_pairs,
        _slow_hosts,
        _late_hosts,
        _wrong_clocks,
        _other_versions,
        _little_space,
    )
    return [sentence for rule in rules for sentence in rule(numbers)]


def by_host(numbers: Numbers, links: list[Link], end: str) -> dict[str, list[Link]]:
    """Links by the host of their ``source`` or ``target``."""
    result: dict[str, list[Link]] = defaultdict(list)
    for link in links:
        result[numbers.host(getattr(link, end))].append(link)
    return result


def _slow_ranks(numbers: Numbers) -> Iterator[str]:
    if len(numbers.facts) < 2:
        return
    usual = statistics.median_high(one.flops for one in numbers.facts)
    for one in numbers.facts:
        if one.flops < _FLOPS_SHARE * usual:
            yield (
                f"{one.host}: rank {one.rank} computes {one.flops / 1e9:.3g} GFLOP/s, "
                f"the others {usual / 1e9:.3g}"
            )


def _slow_pairs(numbers: Numbers) -> Iterator[str]:
    """Within hosts, against the links of all hosts. Ranks that share CPUs wait at random."""
    alone = all(len(ranks) <= ranks[0].cpus for ranks in numbers.hosts().values())
    for device, links in numbers.within.items():
        if device == "cpu" and not alone:
            continue
        usual = statistics.median_high(link.bytes_per_second for link in links)
        for link in links:
            if link.bytes_per_second < _RATE_SHARE * usual:
                yield (
                    f"{numbers.host(link.source)}: {_from_to(device)} rank {link.source} to rank "
                    f"{link.target} {link.bytes_per_second / 1e9:.2g} GB/s, others of a host "
                    f"{usual / 1e9:.2g}"
                )


def _from_to(device: str) -> str:
    return "GPU to GPU, from" if device == "cuda" else "from"


def _slow_hosts(numbers: Numbers) -> Iterator[str]:
    """A host's figure is the median over its links, so that it answers for none but its own. With
    two hosts nobody can tell the end that sends slowly from the one that receives slowly: the
    former is named, for it is more often the cause."""
    limits = {one.host: one.network_bits_per_second / 8 for one in numbers.first_ranks()}
    for device, links in numbers.across.items():
        ends = ("source",) if len(links) == 2 else ("source", "target")
        for end in ends:
            rates = {
                host: statistics.median_high(link.bytes_per_second for link in own)
                for host, own in by_host(numbers, links, end).items()
            }
            verb = "sends" if end == "source" else "receives"
            for host, rate in rates.items():
                others = statistics.median_high(of for name, of in rates.items() if name != host)
                if rate >= max(_RATE_SHARE * others, _INTERFACE_SHARE * limits[host]):
                    continue
                whole = f" of {limits[host] * 8e-9:.3g}" if limits[host] else ""
                figure = f"{rate * 8e-9:.2g}{whole} Gbit/s"
                means = " from its GPU" if device == "cuda" else ""
                yield f"{host}: {verb} {figure}{means}, the others {others * 8e-9:.2g}"


def _late_hosts(numbers: Numbers) -> Iterator[str]:
    for links in numbers.across.values():
        latencies = {
            host: statistics.median_low(link.latency for link in own)
            for host, own in by_host(numbers, links, "source").items()
        }
        for host, latency in latencies.items():
            others = statistics.median_low(of for name, of in latencies.items() if name != host)
            if latency > max(_LATENCY_FACTOR * others, others + _LATENCY_FLOOR):
                yield (
                    f"{host}: {latency * 1e6:.0f} us to other hosts, the others "
                    f"{others * 1e6:.0f} us"
                )


def _wrong_clocks(numbers: Numbers) -> Iterator[str]:
    for link in numbers.across.get("cpu", []):
        if link.source == 0 and abs(link.clock_ahead) > _CLOCK_SECONDS:
            words = "ahead of" if link.clock_ahead > 0 else "behind"
            yield (
                f"{numbers.host(link.target)}: its clock is {abs(link.clock_ahead):.1f} s {words} "
                f"that of {numbers.host(0)}"
            )


def _other_versions(numbers: Numbers) -> Iterator[str]:
    """Finds hosts with other versions of programs, or another device, than most have."""
    firsts = [
        replace(one, versions=one.versions | {"with": one.device}) for one in numbers.first_ranks()
    ]
    names = dict.fromkeys(name for one in firsts for name in one.versions)
    for name in names:
        usual = Counter(one.versions.get(name, "none") for one in firsts).most_common(1)[0][0]
        for one in firsts:
            if (version := one.versions.get(name, "none")) != usual:
                yield f"{one.host}: {name} {version}, the others {usual}"


def _little_space(numbers: Numbers) -> Iterator[str]:
    firsts = numbers.first_ranks()
    usual = statistics.median_high(one.shared_memory_bytes for one in firsts)
    for one in firsts:
        if one.shared_memory_bytes < _SHARED_MEMORY_SHARE * usual:
            yield (
                f"{one.host}: /dev/shm has {one.shared_memory_bytes / 2**20:.0f} MiB, "
                f"the others {usual / 2**20:.0f}"
            )
        for folder, free in one.free_bytes.items():
            if free < _FREE_BYTES:
                yield f"{one.host}: {free / 1e6:.0f} MB are free in {folder}"


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
