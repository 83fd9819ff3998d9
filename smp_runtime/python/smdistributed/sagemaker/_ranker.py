# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of ranks: who shards a copy of the model, and who holds the same shard."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ranker:
    """Ranks in blocks, each of which holds one copy of the model.

    Ranks of a tensor-parallel group are neighbours. Those of a block with the same tensor rank
    shard what it holds; blocks follow each other, and are replicas.

    >>> ranker = Ranker(world_size=8, shard_degree=2, tensor_degree=2)
    >>> ranker.get_rep_groups()
    [[0, 4], [1, 5], [2, 6], [3, 7]]
    >>> ranker.shard_groups()
    [[0, 2], [1, 3], [4, 6], [5, 7]]
    >>> ranker.get_rep_rank(5)
    1
    """

    world_size: int
    shard_degree: int = 1
    tensor_degree: int = 1

    @property
    def block_size(self) -> int:
        return self.shard_degree * self.tensor_degree

    def get_rep_rank(self, rank: int) -> int:
        """Number of the replica that ``rank`` is in; the ranks with 0 write checkpoints."""
        return rank // self.block_size

    def get_rep_groups(self) -> list[list[int]]:
        """Ranks that hold the same shard, for each shard; the same list on all ranks."""
        size = self.block_size
        return [list(range(first, self.world_size, size)) for first in range(size)]

    def blocks(self) -> list[list[int]]:
        """Ranks of each replica."""
        size = self.block_size
        return [list(range(at, at + size)) for at in range(0, self.world_size, size)]

    def shard_groups(self) -> list[list[int]]:
        """Ranks over which FSDP shards."""
        return [
            block[tensor :: self.tensor_degree]
            for block in self.blocks()
            for tensor in range(self.tensor_degree)
        ]

    def tensor_groups(self) -> list[list[int]]:
        """Ranks that compute a layer together."""
        degree = self.tensor_degree
        return [list(range(at, at + degree)) for at in range(0, self.world_size, degree)]


def native_hybrid_degree(world_size: int) -> int:
    """Degree of ``HYBRID_SHARD`` where no key says one: 8, as documented for hosts with 8 GPUs;
    with ranks that 8 does not divide the largest degree below it that does.

    >>> [native_hybrid_degree(size) for size in (16, 4, 12)]
    [8, 4, 6]
    """
    return max(degree for degree in range(1, 9) if world_size % degree == 0)


def groups_over_hosts(groups: list[list[int]], hosts: list[str]) -> list[list[int]]:
    """Groups that span hosts though each host has room for them; ``hosts`` by rank.

    >>> groups_over_hosts([[0, 1], [2, 3]], ["a", "b", "a", "b"])
    [[0, 1], [2, 3]]
    >>> groups_over_hosts([[0, 1], [2, 3]], ["a", "a", "b", "b"])
    []
    """
    room = {host: hosts.count(host) for host in hosts}
    return [
        group
        for group in groups
        if len({hosts[rank] for rank in group}) > 1
        and all(room[hosts[rank]] % len(group) == 0 for rank in group)
    ]
