# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the script around the training: arguments, channels, folders, failures."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch

from tests.mistakes.case import PLAIN, SMDDP, error, mistake, warning


@mistake(
    "A channel that the job does not have",
    (PLAIN, error("The job's channels are train")),
    options={"channel": f"train={Path(__file__).parent}"},
)
def channel_that_is_not_there() -> None:
    os.environ["SM_CHANNEL_TRAINING"]


@mistake(
    "`parse_args()`, which ends at the first argument it does not know",
    (PLAIN, error("parse_known_args()")),
    options={"hyperparameter": ["epochs=3"]},
)
def unknown_argument() -> None:
    argparse.ArgumentParser().parse_args()


@mistake(
    "A hyperparameter for a switch (`store_true`), which takes no value",
    (PLAIN, error("A flag takes no value")),
    options={"hyperparameter": ["resume=true"]},
)
def value_for_a_switch() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    parser.parse_args()


@mistake("An exception with a cause", (PLAIN, error("JSONDecodeError")))
def exception_with_a_cause() -> None:
    try:
        json.loads("{")
    except ValueError as error_:
        raise RuntimeError("cannot read the settings") from error_


@mistake(
    "A state dict that does not fit, which torch tells in many lines",
    (PLAIN, error("Missing key(s) in state_dict")),
)
def error_of_many_lines() -> None:
    torch.nn.Linear(8, 8).load_state_dict({})


@mistake("Nothing is written into `SM_MODEL_DIR`", (PLAIN, warning("SM_MODEL_DIR")))
def no_model() -> None:
    torch.save({}, "model.pt")


@mistake("The backend `smddp` without its import", (SMDDP, error("torch_smddp")))
def backend_without_its_import() -> None:
    torch.distributed.init_process_group("smddp")


def start_smddp() -> int:
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401, PLC0415

    torch.distributed.init_process_group("smddp")
    return torch.distributed.get_rank()


@mistake("Collectives of different sizes over smddp", (SMDDP, error("all_reduce")))
def smddp_of_different_sizes() -> None:
    rank = start_smddp()
    torch.distributed.all_reduce(torch.ones(8 + 4 * rank))


@mistake("Different collectives over smddp", (SMDDP, error("broadcast")))
def smddp_of_different_calls() -> None:
    rank = start_smddp()
    if rank == 0:
        torch.distributed.broadcast(torch.ones(8), 0)
    else:
        torch.distributed.all_reduce(torch.ones(8))


@mistake(
    "A message of a rank that has ended is waited for over smddp",
    (SMDDP, error("recv from rank 1 (tag 0): it has left the group", rank=0)),
)
def smddp_of_a_rank_that_has_ended() -> None:
    if start_smddp() == 0:
        torch.distributed.recv(torch.ones(8), 1)


@mistake(
    "One rank raises under DistributedDataParallel over smddp",
    (SMDDP, error("ValueError: bad label", rank=1)),
)
def smddp_one_rank_raises() -> None:
    rank = start_smddp()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(5):
        if step == 2 and rank == 1:
            raise ValueError("bad label")
        model(torch.ones(4, 8)).sum().backward()


@mistake(
    "Different numbers of batches under DistributedDataParallel over smddp",
    (SMDDP, error("do not make the same call")),
)
def smddp_fewer_batches() -> None:
    rank = start_smddp()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(5 - rank):
        model(torch.ones(4, 8)).sum().backward()
    torch.distributed.barrier()


@mistake(
    "A branch without gradients under DistributedDataParallel over smddp",
    (SMDDP, error("find_unused_parameters")),
)
def smddp_unused_parameters() -> None:
    start_smddp()
    layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)])

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[0](x)

    model = torch.nn.parallel.DistributedDataParallel(Net())
    for _ in range(2):
        model(torch.ones(4, 8)).sum().backward()
