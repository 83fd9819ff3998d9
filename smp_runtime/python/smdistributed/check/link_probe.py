# SPDX-License-Identifier: Apache-2.0
"""Measures latency and bandwidth between two ranks, over the links that the script will use; in
rounds of pairs, each rank with at most one other at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import zip_longest

import torch
import torch.distributed as dist

_PINGS = 40  # at most, and as many as take _PING_SECONDS
_PING_SECONDS = 0.03
_MESSAGES = 6  # at most; fewer over slow links
_MESSAGE_SECONDS = 0.02  # time that one message is to take
_SECONDS = 0.3  # time for one direction
_FIRST_BYTES = 2**17
_MOST_BYTES = 2**26


@dataclass(frozen=True)
class Link:
    """From rank ``source`` to rank ``target``."""

    source: int
    target: int
    bytes_per_second: float
    latency: float  # [s] one way: half of a round trip of 8 bytes
    clock_ahead: float  # [s] how much later it is on the target's clock


def send_probe(peer: int, device: torch.device) -> Link:
    """Measures the link to ``peer``, which calls receive_probe() at the same time. Blocks until
    both are done or the group's timeout is over."""
    latency, clock_ahead = _ping(peer, device)
    rates: list[float] = []
    begin = time.perf_counter()
    size = _FIRST_BYTES
    while len(rates) < _MESSAGES and (len(rates) < 2 or time.perf_counter() - begin < _SECONDS):
        rates.append(_send(peer, size, device, latency))
        size = min(max(int(rates[-1] * _MESSAGE_SECONDS), _FIRST_BYTES), _MOST_BYTES)
    _send_number(peer, 0, device)
    # The first message is short, and where the link is made. Of the others the best one: what else
    # the hosts do slows some, a link that is slow slows all.
    return Link(dist.get_rank(), peer, max(rates[1:]), latency, clock_ahead)


def receive_probe(peer: int, device: torch.device) -> None:
    """The other side of send_probe()."""
    while _receive_number(peer, device):
        _send_number(peer, time.time(), device)
    while size := int(_receive_number(peer, device)):
        dist.recv(torch.empty(size, dtype=torch.uint8, device=device), peer)
        _send_number(peer, size, device)


def _ping(peer: int, device: torch.device) -> tuple[float, float]:
    """By the fastest round trip, whose two ways differ the least."""
    trips: list[tuple[float, float]] = []
    begin = time.perf_counter()
    while len(trips) < _PINGS and (len(trips) < 3 or time.perf_counter() - begin < _PING_SECONDS):
        start, started = time.perf_counter(), time.time()
        _send_number(peer, 1, device)
        there = _receive_number(peer, device)
        took = time.perf_counter() - start
        trips.append((took, there - (started + took / 2)))
    _send_number(peer, 0, device)
    fastest, clock_ahead = min(trips)
    return fastest / 2, clock_ahead


def _send(peer: int, size: int, device: torch.device, latency: float) -> float:
    """Bytes in a second of one message, without its latency and that of its answer."""
    payload = torch.zeros(size, dtype=torch.uint8, device=device)
    _send_number(peer, size, device)
    start = time.perf_counter()
    dist.send(payload, peer)
    _receive_number(peer, device)
    took = time.perf_counter() - start
    return size / max(took - 2 * latency, took / 2)


def _send_number(peer: int, number: float, device: torch.device) -> None:
    dist.send(torch.tensor([number], dtype=torch.float64, device=device), peer)


def _receive_number(peer: int, device: torch.device) -> float:
    number = torch.empty(1, dtype=torch.float64, device=device)
    dist.recv(number, peer)
    return number.item()


#: Pairs that measure at the same time; no rank is in two of them.
Round = list[tuple[int, int]]


def rounds_of(ranks: list[int]) -> list[Round]:
    """Rounds in which each rank is paired with each other one once, by the circle method of
    round-robin tournaments.

    >>> rounds_of([0, 1, 2, 3])
    [[(0, 3), (1, 2)], [(0, 2), (3, 1)], [(0, 1), (2, 3)]]
    >>> rounds_of([5, 6, 7])
    [[(6, 7)], [(5, 7)], [(5, 6)]]
    >>> rounds_of([0])
    []
    """
    circle: list[int | None] = [*ranks, *([None] * (len(ranks) % 2))]
    half = len(circle) // 2
    rounds = []
    for _ in range(len(circle) - 1):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        circle.insert(1, circle.pop())
    return rounds if len(ranks) > 1 else []


def inside_hosts(hosts: list[list[int]]) -> list[Round]:
    """Ranks of each host, by host; all hosts at the same time.

    >>> inside_hosts([[0, 1], [2, 3]])
    [[(0, 1), (2, 3)]]
    """
    together = zip_longest(*map(rounds_of, hosts), fillvalue=[])
    return [[pair for pairs in rounds for pair in pairs] for rounds in together]


def between_hosts(hosts: list[list[int]]) -> list[Round]:
    """The first rank of each host with those of all others.

    >>> between_hosts([[0, 1], [2, 3]])
    [[(0, 2)]]
    """
    return rounds_of([ranks[0] for ranks in hosts])
