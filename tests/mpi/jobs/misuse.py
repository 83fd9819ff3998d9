# SPDX-License-Identifier: Apache-2.0
"""Two ranks of which one does what it should not."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from smdistributed.modelparallel.torch.state_mod import state


def clip() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    smp.clip_grad_norm_([parameter], 1.0)


def unscale() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    smp.amp.GradScaler().unscale_(torch.optim.SGD([parameter], lr=1.0))


REDUCTIONS = {"clip_grad_norm_": clip, "GradScaler": unscale}


def one_rank_alone_in_a_reduction(call: str, waiting: int, before: int, seconds: int) -> None:
    """One rank makes a call that needs the other, which leaves after so many that both make."""
    session = state.require_initialized("this test")
    for _ in range(before):
        REDUCTIONS[call]()
    if before:
        group = session.groups.internal_group("MP")
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
    session.barriers.timeout = timedelta(seconds=seconds)
    if smp.rank() == waiting:
        REDUCTIONS[call]()


def one_rank_alone(call: str) -> None:
    """One rank makes a call that needs the other, which leaves."""
    model = None
    if call == "state_dict":
        model = smp.DistributedModel(torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in "ab")))
        model.partition(None)
    state.require_initialized("this test").barriers.timeout = timedelta(seconds=1)
    if call == "barrier" and smp.rank() == 0:
        smp.barrier()
    elif call == "recv_from" and smp.rank() == 0:
        smp.recv_from(1, smp.RankType.PP_RANK)
    elif call == "send" and smp.rank() == 1:
        smp.send("hello", 0, smp.RankType.WORLD_RANK)
    elif call == "allgather" and smp.rank() == 1:
        smp.allgather(1, smp.PP_GROUP)
    elif model is not None and smp.rank() == 1:
        model.state_dict()


def name_a_rank_that_is_not_there() -> None:
    smp.recv_from(2, smp.RankType.PP_RANK)


def nothing() -> None:
    """For jobs that end before they begin."""


if __name__ == "__main__":
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    if sys.argv[1] == "different-settings":
        smp.init({"microbatches": 2 + rank})
    elif sys.argv[1] == "failure":
        smp.init({"partitions": 2})
        if rank == 0:
            raise ArithmeticError("the script of rank 0 failed")
        smp.barrier()
    elif sys.argv[1] == "exit":
        smp.init({"partitions": 2})
        if rank == 0:
            sys.exit(5)
        smp.barrier()
