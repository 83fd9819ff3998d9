# SPDX-License-Identifier: Apache-2.0
"""Mistakes when a model is saved or loaded."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

from tests.mistakes.case import DDP, EVERYWHERE, ONE, PP, SDP, TP, error, mistake
from tests.mistakes.frame import FOLDER, net, optimizer_of, train, wrap

CHECKPOINTS = str(FOLDER / "checkpoints")


@mistake("A state dict with the prefix `module.` of a wrapper", (EVERYWHERE, error("prefix")))
def state_with_a_prefix() -> None:
    state = {f"module.{name}": value for name, value in net().state_dict().items()}
    model, _ = wrap()
    model.load_state_dict(state)


@mistake("... and `strict=False`, which loads nothing", (EVERYWHERE, error("prefix")))
def state_with_a_prefix_not_strict() -> None:
    state = {f"module.{name}": value for name, value in net().state_dict().items()}
    model, _ = wrap()
    model.load_state_dict(state, strict=False)


@mistake("A state dict of a model of another size", (EVERYWHERE, error("0.weight")))
def state_of_another_size() -> None:
    other = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    model, _ = wrap()
    model.load_state_dict(other.state_dict())


@mistake("A part of the model, loaded as the model", ((PP, SDP), error("load_state_dict")))
def part_loaded_as_the_model() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    torch.save(model.local_state_dict(), FOLDER / f"part{smp.rank()}.pt")
    net().load_state_dict(torch.load(FOLDER / f"part{smp.rank()}.pt"))


@mistake(
    "`torch.save(model.get_module().state_dict())`, one rank's part",
    (PP, error("its values are on partition")),
    (SDP, error("its values are sharded over 2 ranks")),
)
def state_of_the_module() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    torch.save(model.get_module().state_dict(), FOLDER / f"model{smp.rank()}.pt")


@mistake(
    "A resumed optimizer is of another class",
    ((ONE, PP, SDP), error("is of SGD, and the optimizer here is AdamW")),
)
def optimizer_of_another_class() -> None:
    model = smp.DistributedModel(net())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    train(model, optimizer, 1)
    smp.save_checkpoint(CHECKPOINTS, tag="t", partial=True, model=model, optimizer=optimizer)
    other = optimizer_of(model)
    smp.resume_from_checkpoint(CHECKPOINTS, tag="t", partial=True)
    train(model, other, 1)


@mistake("A checkpoint that is not there", ((ONE, PP, DDP), error("checkpoints")))
def checkpoint_that_is_not_there() -> None:
    wrap()
    smp.resume_from_checkpoint(CHECKPOINTS, tag="t9", partial=True)


@mistake("A file that is cut off", ((ONE, TP), error("cannot read …model.pt")))
def file_that_is_cut_off() -> None:
    path = FOLDER / f"model.pt{smp.rank()}"
    model, _ = wrap()
    torch.save(model.local_state_dict(), path)
    path.write_bytes(path.read_bytes()[:500])
    smp.load(str(path), partial=False)


class Progress:
    """An object of the script's own."""


@mistake(
    "User content of a class of one's own, read without a word of trust",
    ((ONE, PP), error("it holds tests.mistakes.cases.checkpoints.Progress, which could run code")),
)
def content_of_a_class_of_ones_own() -> None:
    model, optimizer = wrap()
    train(model, optimizer, 1)
    smp.save_checkpoint(CHECKPOINTS, tag="t", partial=True, model=model, user_content=Progress())
    smp.resume_from_checkpoint(CHECKPOINTS, tag="t", load_optimizer=False)
