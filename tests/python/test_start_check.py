# SPDX-License-Identifier: Apache-2.0
"""Outliers of the check before the start, in numbers that no machine had to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from smdistributed.check.host_facts import RankFacts
from smdistributed.check.link_probe import Link, between_hosts, inside_hosts, rounds_of
from smdistributed.check.outliers import Numbers, find_outliers, table

RANKS_A_HOST = 2


def fact(rank: int) -> RankFacts:
    return RankFacts(
        host=f"algo-{rank // RANKS_A_HOST + 1}",
        rank=rank,
        flops=40e9,
        device="4 CPUs",
        cpus=4,
        versions={"torch": "2.11.0", "smp": "1"},
        shared_memory_bytes=2**30,
        free_bytes={"/tmp": 10**11},
        network_bits_per_second=10e9,
    )


def link(source: int, target: int, rate: float) -> Link:
    return Link(source, target, bytes_per_second=rate, latency=30e-6, clock_ahead=0)


def good(hosts: int) -> Numbers:
    """4 GB/s in a host, 9.4 Gbit/s between hosts."""
    ranks = [[RANKS_A_HOST * n, RANKS_A_HOST * n + 1] for n in range(hosts)]
    numbers = Numbers([fact(rank) for of in ranks for rank in of])
    for rounds, found, rate in (
        (inside_hosts(ranks), numbers.within, 4e9),
        (between_hosts(ranks), numbers.across, 1.175e9),
    ):
        pairs = [pair for together in rounds for pair in together]
        ways = [way for a, b in pairs for way in ((a, b), (b, a))]
        if ways:
            found["cpu"] = [link(source, target, rate) for source, target in ways]
    return numbers


def change(links: list[Link], what: Callable[[Link], bool], **values: float) -> None:
    links[:] = [replace(one, **values) if what(one) else one for one in links]


@pytest.mark.parametrize("hosts", [1, 2, 3, 8])
def test_equal_hosts_have_no_outliers(hosts):
    assert find_outliers(good(hosts)) == []


def test_all_are_paired_once_and_none_is_in_two_places():
    for count in range(1, 12):
        rounds = rounds_of(list(range(count)))
        paired = [frozenset(pair) for pairs in rounds for pair in pairs]
        assert len(paired) == len(set(paired)) == count * (count - 1) // 2
        for pairs in rounds:
            places = [rank for pair in pairs for rank in pair]
            assert len(places) == len(set(places))


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_a_host_that_sends_slowly_is_named_alone(hosts):
    numbers = good(hosts)
    change(numbers.across["cpu"], lambda one: one.source == 2, bytes_per_second=0.1175e9)

    assert find_outliers(numbers) == ["algo-2: sends 0.94 of 10 Gbit/s, the others 9.4"]


def test_a_host_that_receives_slowly_is_named_alone():
    numbers = good(3)
    change(numbers.across["cpu"], lambda one: one.target == 4, bytes_per_second=0.1e9)

    assert find_outliers(numbers) == ["algo-3: receives 0.8 of 10 Gbit/s, the others 9.4"]


def test_a_network_that_is_slow_for_all_is_seen_by_what_its_interface_says():
    numbers = good(2)
    change(numbers.across["cpu"], lambda _: True, bytes_per_second=25e6)

    assert find_outliers(numbers) == [
        f"algo-{n}: sends 0.2 of 10 Gbit/s, the others 0.2" for n in (1, 2)
    ]


def test_a_slow_rank_a_late_host_and_a_slow_pair():
    numbers = good(3)
    numbers.facts[3] = replace(numbers.facts[3], flops=12e9)
    change(numbers.across["cpu"], lambda one: one.source == 2, latency=800e-6)
    change(numbers.within["cpu"], lambda one: one.source == 5, bytes_per_second=0.5e9)

    assert find_outliers(numbers) == [
        "algo-2: rank 3 computes 12 GFLOP/s, the others 40",
        "algo-3: from rank 5 to rank 4 0.5 GB/s, others of a host 4",
        "algo-2: 800 us to other hosts, the others 30 us",
    ]


def test_ranks_that_share_cpus_are_not_judged_by_how_they_reach_each_other():
    numbers = good(2)
    change(numbers.within["cpu"], lambda one: one.source == 1, bytes_per_second=0.5e9)
    assert len(find_outliers(numbers)) == 1

    numbers.facts[:] = [replace(one, cpus=1) for one in numbers.facts]
    assert find_outliers(numbers) == []


def test_versions_clocks_and_space():
    numbers = good(3)
    for rank in (2, 3):
        numbers.facts[rank] = replace(
            numbers.facts[rank],
            versions={"torch": "2.10.0", "smp": "1"},
            shared_memory_bytes=2**26,
            free_bytes={"/opt/ml/checkpoints": 3 * 10**8},
        )
    change(numbers.across["cpu"], lambda one: one.target == 2, clock_ahead=-61.0)

    assert find_outliers(numbers) == [
        "algo-2: its clock is 61.0 s behind that of algo-1",
        "algo-2: torch 2.10.0, the others 2.11.0",
        "algo-2: /dev/shm has 64 MiB, the others 1024",
        "algo-2: 300 MB are free in /opt/ml/checkpoints",
    ]


def test_the_table_has_a_line_for_each_host():
    lines = table(good(2)).splitlines()

    assert lines[0].split("  ")[0] == "host"
    assert [line.split()[0] for line in lines[1:]] == ["algo-1", "algo-2"]
    assert "4 GB/s, 30 us" in lines[1]
    assert "9.4 Gbit/s, 30 us" in lines[2]
