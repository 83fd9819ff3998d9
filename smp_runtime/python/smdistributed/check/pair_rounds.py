# SPDX-License-Identifier: Apache-2.0
"""Plans rounds of measurements between pairs: each rank with at most one other at a time."""

from __future__ import annotations

from itertools import zip_longest

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
