# SPDX-License-Identifier: Apache-2.0
"""Mistakes that make ranks differ: who calls what, and how often."""

from __future__ import annotations

import importlib
import os
import signal
import sys

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

from tests.mistakes.case import DDP, PP, SDP, TP, error, mistake, warning
from tests.mistakes.frame import FOLDER, batches, eval_step, net, train, train_step, wrap

ALL = (PP, TP, SDP, DDP)


@mistake(
    "`if smp.rank() == 0: torch.save(model.state_dict())`", ((PP, TP, SDP), error("state_dict()"))
)
def state_dict_on_one_rank() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    if smp.rank() == 0:
        torch.save(model.state_dict(), FOLDER / "model.pt")
    smp.barrier()


@mistake("A barrier that one rank alone calls", (ALL, error("smp.barrier")))
def barrier_on_one_rank() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    if smp.rank() == 0:
        smp.barrier()
    train(model, optimizer, 1)


@mistake(
    "An evaluation that one rank alone runs",
    (PP, error("all ranks call the step the same number of times")),
    (SDP, error("eval_step")),
)
def evaluation_on_one_rank() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    if smp.rank() == 0:
        eval_step(model, *next(batches(1)))
    train(model, optimizer, 2)


@mistake("One rank has fewer batches than the others", (ALL, error("rank 1")))
def fewer_batches() -> None:
    model, optimizer = wrap()
    for x, y in batches(5 - 2 * smp.rank()):
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


@mistake(
    "A loop in forward whose length depends on the rank's data",
    (SDP, error("gathering")),
)
def loops_of_different_lengths() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.outer = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2 + smp.rank()):
                x = torch.relu(self.inner(x))
            result: torch.Tensor = self.outer(x)
            return result

    model, optimizer = wrap(Loop())
    train(model, optimizer, 3)


@mistake("Only the first stage has batches", (PP, error("has ended")))
def batches_on_one_stage() -> None:
    model, optimizer = wrap()
    for x, y in batches(4) if smp.pp_rank() == 0 else []:
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


@mistake("Each rank decides for itself when to stop", (ALL, error("rank 1")))
def early_stop() -> None:
    model, optimizer = wrap()
    for step, (x, y) in enumerate(batches(10)):
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()
        if step == 2 and smp.rank() == 1:
            break
    smp.barrier()


def fail_on_rank_1() -> None:
    raise ValueError("bad label")


def train_and(on_rank_1: object) -> None:
    model, optimizer = wrap()
    for step, (x, y) in enumerate(batches(5)):
        if step == 2 and smp.rank() == 1:
            on_rank_1()  # type: ignore[operator]
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


@mistake("One rank raises", (ALL, error("ValueError: bad label", rank=1)))
def one_rank_raises() -> None:
    train_and(fail_on_rank_1)


@mistake("One rank calls `sys.exit(3)`", (ALL, error("", rank=1, code=3)))
def one_rank_exits() -> None:
    train_and(lambda: sys.exit(3))


@mistake("One rank ends early, with exit code 0", (ALL, error("rank 1")))
def one_rank_ends() -> None:
    train_and(lambda: sys.exit(0))


@mistake("One rank leaves by `os._exit(7)`", (ALL, error("", rank=1, code=7)))
def one_rank_exits_at_once() -> None:
    train_and(lambda: os._exit(7))


@mistake("One rank is killed, as by the system for want of memory", (ALL, error("", rank=1)))
def one_rank_is_killed() -> None:
    train_and(lambda: os.kill(os.getpid(), signal.SIGKILL))


@mistake(
    "An import fails on one rank, before `smp.init()`",
    (ALL, error("No module named", rank=1)),
    before_init=True,
)
def import_error_on_one_rank() -> None:
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        importlib.import_module("not_there")


@mistake(
    "An error of one rank is caught, and its step left out",
    ((TP, DDP), error("none of these calls can end")),
)
def caught_and_skipped() -> None:
    model, optimizer = wrap()
    for step, (x, y) in enumerate(batches(5)):
        try:
            optimizer.zero_grad()
            if step == 2 and smp.rank() == 1:
                raise RuntimeError("out of memory")
            train_step(model, x, y)
            optimizer.step()
        except RuntimeError:
            print("skipped")
    smp.barrier()


@mistake("Collectives of torch of different sizes", (DDP, error("size")))
def collectives_of_different_sizes() -> None:
    wrap()
    torch.distributed.all_reduce(torch.ones(8 + 4 * smp.rank()))
    smp.barrier()


@mistake("Every replica trains on the same samples", (DDP, warning("smp.dp_rank()")))
def same_samples_everywhere() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(64, 8), torch.randint(4, (64,))
    data = torch.utils.data.TensorDataset(*numbers)
    model, optimizer = wrap()
    for x, y in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


@mistake(
    "A data set of one rank raises in a DataLoader's worker",
    (ALL, error("rank 1 on algo-1: KeyError: 'label'", rank=1)),
)
def worker_that_raises() -> None:
    class Data(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            if index == 20 and smp.rank() == 1:
                raise KeyError("label")
            return torch.ones(8), index % 4

    model, optimizer = wrap()
    for x, y in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=1):
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()


@mistake("A rank that is not there is sent to", (PP, error("which has ranks 0 to 1")))
def rank_that_is_not_there() -> None:
    smp.send("x", 2, smp.RankType.PP_RANK)


@mistake("`if loss is NaN: continue` on one rank", ((DDP, SDP, PP), error("step")))
def one_rank_skips_a_step() -> None:
    model, optimizer = wrap(net())
    for step, (x, y) in enumerate(batches(5)):
        if step == 2 and smp.rank() == 1:
            continue
        optimizer.zero_grad()
        train_step(model, x, y)
        optimizer.step()
    smp.barrier()
    F.relu(torch.ones(1))
