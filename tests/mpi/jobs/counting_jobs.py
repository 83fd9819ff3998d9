# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_backward_counting.py."""

from __future__ import annotations

import functools
import gc
import os
import traceback
from collections import defaultdict
from typing import Any
from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
from jobs.counting_models import AllCases, Fragile, batch, belongs
from jobs.sharded_model_jobs import resident_bytes
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves


def place(module: nn.Module) -> None:
    """Puts modules on the partitions that they are wanted on."""
    for part in module.modules():
        wanted = getattr(part, "wanted_partition", None)
        if wanted is not None:
            smp.set_partition(part, wanted % smp.pp_size())


def distributed(module: nn.Module) -> smp.DistributedModel:
    place(module)
    return smp.DistributedModel(module)


@functools.cache
def step_of(case: str) -> Any:
    """A step of its own for each case: a fixed order of work holds for steps of one name."""

    def step(model, *tensors):
        loss = model(case, *tensors).sum()
        model.backward(loss)
        return loss

    step.__qualname__ = f"step of {case}"
    return smp.step(step)


class Census:
    """Tensors that modules of this rank returned and somebody still holds: the engine keeps outputs
    of calls until their backward or the microbatch's end, some for other ranks to fetch, and a
    graph keeps outputs that a later module has used."""

    def __init__(self, module: nn.Module) -> None:
        self._seen: dict[int, list[StorageWeakRef]] = defaultdict(list)
        for part in module.modules():
            part.register_forward_hook(self._note)

    def _note(self, _module: nn.Module, _args: Any, result: Any) -> None:
        microbatch = smp.state.require_engine().microbatch
        for tensor in tree_leaves(result):
            # Without a graph it may be the batch; of another class it stands for data elsewhere.
            if type(tensor) is torch.Tensor and tensor.grad_fn is not None:
                self._seen[microbatch].append(StorageWeakRef(tensor.untyped_storage()))

    def noted(self) -> int:
        return sum(map(len, self._seen.values()))

    def held(self, but: int = -1) -> int:
        """Number of held tensors of all microbatches but one."""
        if self._count(but):
            # Neither a cycle of Python's is a leak of ours, nor what a thread that has sent it is
            # about to let go. Takes long, so not at once.
            gc.collect()
        return self._count(but)

    def _count(self, but: int) -> int:
        return sum(
            not reference.expired()
            for microbatch, references in self._seen.items()
            for reference in references
            if microbatch != but
        )

    def forget(self) -> None:
        self._seen.clear()


def count(names: list[str], sizes: list[int], config: dict[str, Any], direct: str):
    """By case: for each step losses, gradients of this rank's parameters and how many outputs are
    held behind it, or the error of the case."""
    smp.shutdown()
    with mock.patch.dict(os.environ, SMP_DIRECT_EXCHANGE=direct):
        smp.init(config)
    model = distributed(AllCases())
    census = Census(model.get_module())
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = [one_step(model, census, name, rows) for rows in sizes]
        except Exception:
            found[name] = traceback.format_exc()
    return found


def one_step(model: smp.DistributedModel, census: Census, case: str, rows: int):
    model.zero_grad()
    losses = [loss.item() for loss in step_of(case)(model, *batch(rows)).outputs]
    held = census.held()
    census.forget()
    parameters = model.local_named_parameters()
    return losses, {name: p.grad for name, p in parameters if belongs(name, case)}, held


# --- Between microbatches ---


class Teller(nn.Module):
    """Counts, on its partition, what is held of earlier microbatches."""

    def __init__(self) -> None:
        super().__init__()
        self.census: Census | None = None
        self.counts: list[int] = []

    def forward(self) -> None:
        if self.census is not None:
            self.counts.append(self.census.held(but=smp.state.require_engine().microbatch))


class CountedCases(AllCases):
    """Has a teller of each partition count in front of each microbatch. The driver calls them, so
    they come behind its word that the microbatch before is over."""

    def __init__(self) -> None:
        super().__init__()
        self.tellers = nn.ModuleList(Teller() for _ in range(smp.pp_size()))
        for partition, teller in enumerate(self.tellers):
            smp.set_partition(teller, partition)

    def forward(self, case: str, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for teller in self.tellers:
                teller()
        return super().forward(case, x, tokens)


def count_between_microbatches(names: list[str], sizes: list[int]):
    """By case: what this rank's teller counted, and how many outputs there were to count."""
    module = CountedCases()
    model = distributed(module)
    census, teller = Census(module.cases), module.tellers[smp.pp_rank()]
    teller.census = census
    found = {}
    for name in names:
        noted = 0
        for rows in sizes:
            step_of(name)(model, *batch(rows))
            noted += census.noted()
            census.forget()
        found[name] = teller.counts.copy(), noted
        teller.counts.clear()
    return found


# --- Failures ---


def fail_in_backward(where: str, rows: int):
    """Three steps, of which the second fails in a backward of module `where`: its error, and losses
    and gradients of the third."""
    module = Fragile()
    model = distributed(module)
    step_of("fragile")(model, *batch(rows))
    module.get_submodule(where).broken = True
    text = failure_of(lambda: step_of("fragile")(model, *batch(rows)))
    module.get_submodule(where).broken = False
    return text, *step_again(model, rows)


def come_to_the_tail(rows: int, tail: int):
    """A step, one with the last rows of a data set, and one more: as fail_in_backward()."""
    model = distributed(Fragile())
    step_of("fragile")(model, *batch(rows))
    text = failure_of(lambda: step_of("fragile")(model, *batch(tail)))
    return text, *step_again(model, rows)


def failure_of(act: Any) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no failure"


def step_again(model: smp.DistributedModel, rows: int):
    model.zero_grad()
    losses = [loss.item() for loss in step_of("fragile")(model, *batch(rows)).outputs]
    return losses, {name: p.grad for name, p in model.local_named_parameters()}


# --- Memory ---


def watch_memory(names: list[str], rows: int, steps: int, every: int):
    """Resident memory after each `every` steps, which take the cases in turn."""
    model = distributed(AllCases())
    tensors, found = batch(rows), []
    for number in range(1, steps + 1):
        model.zero_grad()
        step_of(names[number % len(names)])(model, *tensors)
        if number % every == 0:
            found.append(resident_bytes())
    return found
