# SPDX-License-Identifier: Apache-2.0
"""Which ranks share one copy of a model's state, and which hold the same part of it.

Parameters that see the batches of a whole tensor-parallel group are alike on the ranks of the
reduced data-parallel group; all others on those of the data-parallel group (nn.parameter_slices).
So there are two replication groups with tensor parallelism, and one without.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session import ranks
from smdistributed.modelparallel.torch._session.log import info
from smdistributed.modelparallel.torch.state_mod import state


@dataclass(frozen=True)
class ShardGroups:
    """The c10d groups of this rank among those that hold some parameters alike, their replication
    group; None where it is alone."""

    degree: int
    index: int
    """Of this rank in its shard group."""
    shards: dist.ProcessGroup | None
    control: dist.ProcessGroup | None
    """The ranks of ``shards``, for numbers on the CPU; may be the same group."""
    replicas: dist.ProcessGroup | None
    across_hosts: dist.ProcessGroup | None
    within_host: dist.ProcessGroup | None
    divisor: int
    """Of gradients, once those of the whole group are added up."""

    def for_store(self, *, checked: bool) -> _runtime.ReplicationGroupNames:
        """``checked``: each exchange goes with a control header that tells whether all ranks mean
        the same, which what modules a rank runs may make untrue."""
        barriers = state.require_initialized("sharding").barriers
        return _runtime.ReplicationGroupNames(
            shard_group=_name_of(self.shards),
            control_group=_name_of(self.control) if checked else "",
            replica_group=_name_of(self.replicas),
            across_hosts_group=_name_of(self.across_hosts),
            within_host_group=_name_of(self.within_host),
            ranks=[] if self.control is None else dist.get_process_group_ranks(self.control),
            watch=barriers.watch,
            index=self.index,
            divisor=self.divisor,
        )


def _name_of(group: dist.ProcessGroup | None) -> str:
    return "" if group is None else str(group.group_name)


def split(members: list[int], degree: int, own: int) -> tuple[list[int], list[int]]:
    """The shard group and the replicas of rank ``own``: consecutive ranks share a copy.

    >>> split([0, 1, 2, 3], 2, 2)
    ([2, 3], [0, 2])
    """
    index = members.index(own)
    begin = index - index % degree
    return members[begin : begin + degree], members[index % degree :: degree]


def make_groups(degree: int, own_degree: int) -> list[ShardGroups]:
    """Groups of a state: first of the parameters that see this rank's own batch, which
    ``own_degree`` ranks share, then, with tensor parallelism, of those that see the batches of all
    tensor ranks, which ``degree`` ranks of the reduced data-parallel group share. Equal degrees
    have the same shard group. Collective over the data-parallel ranks.
    """
    session = state.require_initialized("sharding")
    groups, mesh = session.groups, session.mesh
    own = ranks.rank()
    if ranks.tp_size() == 1:
        return [_made(*split(groups.ranks("DP"), own_degree, own), divisor=ranks.dp_size())]
    shards, replicas = split(groups.ranks("RDP"), degree, own)
    if own_degree == degree:
        of_peers = [split(mesh.group(_runtime.Group.RDP, peer), degree, peer)[1]
                    for peer in groups.ranks("TP")]  # fmt: skip
        wide = shards, sorted(rank for of_peer in of_peers for rank in of_peer)
    else:
        wide = split(groups.ranks("DP"), own_degree, own)
    return [
        _made(*wide, divisor=ranks.dp_size()),
        _made(shards, replicas, divisor=ranks.rdp_size()),
    ]


def _made(shard_ranks: list[int], replica_ranks: list[int], divisor: int) -> ShardGroups:
    session = state.require_initialized("sharding")
    groups, own, degree = session.groups, session.ranks.rank, len(shard_ranks)
    shards = control = replicas = across = within = None
    if degree > 1:
        layout = session.layout_of(shard_ranks)
        steps = layout.gather_steps()
        by_host = state.cfg.sdp_hierarchical_allgather or steps is None
        shards = groups.group_of("shards", shard_ranks, by_host=by_host)
        if groups.shares_by_host and by_host:
            control = shards
        else:
            control = groups.cpu_group_of("shard control", shard_ranks)
        if control is shards:
            pass  # it gathers in steps by itself
        elif by_host and steps is not None:
            on_all_hosts, on_this_host = ([shard_ranks[n] for n in step] for step in steps)
            across = groups.group_of("shards across hosts", on_all_hosts, by_host=True)
            within = groups.group_of("shards within a host", on_this_host, by_host=True)
        elif layout.hosts > 1 and own == 0:
            info(f"parameters are gathered in one step: {degree} ranks do not lie evenly on "
                 f"{layout.hosts} hosts, or sdp_hierarchical_allgather is false")  # fmt: skip
    if len(replica_ranks) > 1:
        replicas = groups.group_of("replicas of shards", replica_ranks, by_host=True)
    index = shard_ranks.index(own)
    return ShardGroups(degree, index, shards, control, replicas, across, within, divisor)
