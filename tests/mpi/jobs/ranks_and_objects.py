# SPDX-License-Identifier: Apache-2.0
"""Ranks, groups and objects, checked on every rank against formulas written down here again."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from smdistributed.modelparallel.torch.state_mod import state

KINDS = {
    smp.WORLD: smp.RankType.WORLD_RANK,
    smp.MP_GROUP: smp.RankType.MP_RANK,
    smp.DP_GROUP: smp.RankType.DP_RANK,
    smp.PP_GROUP: smp.RankType.PP_RANK,
    smp.TP_GROUP: smp.RankType.TP_RANK,
    smp.RDP_GROUP: smp.RankType.RDP_RANK,
}


class Tagged(OrderedDict):  # type: ignore[type-arg]
    """A dict of a type of its own."""


def sum_after_a_group_of_one_stage() -> int:
    """Sum over the ranks of this pipeline, of which one stage alone has made another group."""
    if smp.pp_rank() == 0:
        dist.new_group(smp.get_dp_group(), use_local_synchronization=True)
    group = state.require_initialized("a test").groups.cpu_group("PP")
    total = torch.tensor([smp.rank()])
    dist.all_reduce(total, group=group)
    return int(total)


def coordinates(rank: int, size: int, layout: dict[str, object]) -> dict[str, int]:
    names = {"cluster": "DPT", "spread": "TPD"}
    placement = str(layout["placement_strategy"])
    pp, tp = int(str(layout["partitions"])), int(str(layout["tensor_parallel_degree"]))
    sizes = {"D": size // (pp * tp), "P": pp, "T": tp}
    at: dict[str, int] = {}
    for letter in reversed(names.get(placement, placement)):
        rank, at[letter] = divmod(rank, sizes[letter])
    return at


def members(same: str, rank: int, size: int, layout: dict[str, object]) -> list[int]:
    own = coordinates(rank, size, layout)
    return [
        other
        for other in range(size)
        if all(coordinates(other, size, layout)[letter] == own[letter] for letter in same)
    ]


def check_ranks(layout: dict[str, object]) -> None:
    rank, size = smp.rank(), smp.size()
    at = coordinates(rank, size, layout)
    assert (smp.rdp_rank(), smp.pp_rank(), smp.tp_rank()) == (at["D"], at["P"], at["T"])
    expected = {
        "pp": members("TD", rank, size, layout),
        "tp": members("PD", rank, size, layout),
        "rdp": members("PT", rank, size, layout),
        "dp": members("P", rank, size, layout),
        "mp": members("D", rank, size, layout),
    }
    for name, ranks in expected.items():
        assert getattr(smp, f"get_{name}_group")() == ranks
        assert getattr(smp, f"{name}_size")() == len(ranks)
        assert getattr(smp, f"{name}_rank")() == ranks.index(rank)
    assert (smp.local_rank(), smp.local_size()) == (rank, size)


def check_process_groups() -> None:
    assert dist.get_rank() == smp.rank()
    for name in ("mp", "dp", "pp", "tp", "rdp"):
        group = getattr(smp, f"get_{name}_process_group")()
        total = torch.tensor(float(smp.rank()))
        dist.all_reduce(total, group=group)
        assert total.item() == sum(getattr(smp, f"get_{name}_group")())
    total = torch.ones(1)
    dist.all_reduce(total, group=smp.get_world_process_group())
    assert total.item() == smp.size()


def own_rank(kind: smp.CommGroup) -> tuple[int, int]:
    name = KINDS[kind].name.removesuffix("_RANK").lower()
    prefix = "" if name == "world" else f"{name}_"
    return getattr(smp, f"{prefix}rank")(), getattr(smp, f"{prefix}size")()


def check_objects(kind: smp.CommGroup) -> None:
    rank, size = own_rank(kind)
    rank_type = KINDS[kind]

    gathered = smp.allgather({"rank": rank, "data": "x" * (rank * 1000)}, kind)
    assert [g["rank"] for g in gathered] == list(range(size))
    assert [len(g["data"]) for g in gathered] == [r * 1000 for r in range(size)]

    # Everybody broadcasts in turn; the others receive in order.
    for source in range(size):
        if rank == source:
            smp.broadcast(Tagged(source=source, values=torch.arange(3) + source), kind)
        else:
            got = smp.recv_from(source, rank_type)
            assert type(got) is Tagged
            assert got["values"].tolist() == [source, source + 1, source + 2]

    # Messages of a pair arrive in the order in which they were sent.
    if size > 1 and rank == 0:
        for number in range(20):
            smp.send(number, 1, rank_type)
        assert smp.recv_from(1, rank_type) == "done"
    elif rank == 1:
        assert [smp.recv_from(0, rank_type) for _ in range(20)] == list(range(20))
        smp.send("done", 0, rank_type)
    smp.barrier(kind)


def check_large_objects() -> None:
    if smp.size() == 1:
        return
    if smp.rank() == 0:
        smp.broadcast(torch.arange(1_000_000), smp.WORLD)
    else:
        assert int(smp.recv_from(0, smp.RankType.WORLD_RANK).sum()) == 499_999_500_000


def check_sending_to_oneself() -> None:
    smp.send("me", smp.rank(), smp.RankType.WORLD_RANK)
    assert smp.recv_from(smp.rank(), smp.RankType.WORLD_RANK) == "me"


def check(layout: dict[str, object]) -> None:
    """Everything, in a job that was initialised with ``layout``."""
    check_ranks(layout)
    check_process_groups()
    for kind in KINDS:
        check_objects(kind)
    check_large_objects()
    check_sending_to_oneself()
    for wait in (smp.mp_barrier, smp.dp_barrier, smp.pp_barrier, smp.tp_barrier, smp.rdp_barrier):
        wait()


if __name__ == "__main__":
    LAYOUT: dict[str, object] = json.loads(sys.argv[1])
    smp.init(LAYOUT)
    check(LAYOUT)
    print("checked on one rank", flush=True)
