# SPDX-License-Identifier: Apache-2.0
"""Which ranks share one copy of a model's state, and which hold the same part of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from smdistributed.modelparallel.torch.log import info
from smdistributed.modelparallel.torch.state_mod import state


@dataclass(frozen=True)
class ShardGroups:
    """The c10d groups of this rank; None for a group of one."""

    degree: int
    index: int
    """Of this rank in its shard group."""
    shards: dist.ProcessGroup | None
    words: dist.ProcessGroup | None
    """The ranks of ``shards``, for numbers on the CPU."""
    replicas: dist.ProcessGroup | None
    across_hosts: dist.ProcessGroup | None
    within_host: dist.ProcessGroup | None


def name_of(group: dist.ProcessGroup | None) -> str:
    return "" if group is None else str(group.group_name)


def split(ranks: list[int], degree: int, own: int) -> tuple[list[int], list[int]]:
    """The shard group and the replicas of rank ``own``: consecutive ranks share a copy.

    >>> split([0, 1, 2, 3], 2, 2)
    ([2, 3], [0, 2])
    """
    index = ranks.index(own)
    begin = index - index % degree
    return ranks[begin : begin + degree], ranks[index % degree :: degree]


def host_steps(ranks: list[int], own: int, per_host: int) -> tuple[list[int], list[int]] | None:
    """Ranks to gather from across hosts, then within this one, if ``ranks`` fill several hosts.

    >>> host_steps([0, 1, 2, 3], 3, 2)
    ([1, 3], [2, 3])
    >>> host_steps([0, 1], 0, 2) is None
    True
    """
    if per_host < 2 or len(ranks) <= per_host or len(ranks) % per_host != 0:
        return None
    hosts = [ranks[at : at + per_host] for at in range(0, len(ranks), per_host)]
    if any({rank // per_host for rank in host} != {host[0] // per_host} for host in hosts):
        return None
    place = ranks.index(own) % per_host
    return [host[place] for host in hosts], hosts[ranks.index(own) // per_host]


def make_groups(degree: int) -> ShardGroups:
    """Groups over the data-parallel ranks of this process. Collective over them."""
    session = state.require_initialized("sharding")
    groups, own = session.groups, session.identity.rank
    shard_ranks, replica_ranks = split(groups.ranks("DP"), degree, own)
    shards = words = replicas = across = within = None
    if degree > 1:
        shards = groups.group_of("shards", shard_ranks)
        words = groups.cpu_group_of("shard words", shard_ranks)
        local_size = session.identity.local_size or 1
        steps = host_steps(shard_ranks, own, local_size)
        if state.cfg.sdp_hierarchical_allgather and steps is not None:
            across = groups.group_of("shards across hosts", steps[0])
            within = groups.group_of("shards within a host", steps[1])
        elif degree > local_size and own == 0:
            info(f"parameters are gathered in one step: {degree} ranks do not fill several hosts "
                 f"of {local_size}, or sdp_hierarchical_allgather is false")  # fmt: skip
    if len(replica_ranks) > 1:
        replicas = groups.group_of("replicas of shards", replica_ranks)
    return ShardGroups(degree, shard_ranks.index(own), shards, words, replicas, across, within)
