# SPDX-License-Identifier: Apache-2.0
"""Memory that a step takes, as smp.memory_summary says."""

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._metrics import memory_ledger
from torch import nn

ROWS, WIDTH, LAYERS = 1024, 1000, 4
LAYER_BYTES = ROWS * WIDTH * 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


@smp.step
def train(model, batch):
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


@smp.step
def evaluate(model, batch):
    return model(batch).square().mean()


def activations_of(steps, microbatches: int, *, checkpointed: bool = False) -> int:
    smp.init({"microbatches": microbatches})
    try:
        body = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        model = smp.DistributedModel(body)
        for layer in body if checkpointed else []:
            smp.set_activation_checkpointing(layer)
        for step in steps:
            step(model, torch.ones(ROWS, WIDTH))
        return smp.memory_summary()["activations"]
    finally:
        smp.shutdown()


@pytest.mark.parametrize("microbatches", [1, 2])
def test_activations_are_what_forwards_keep(microbatches: int) -> None:
    found = activations_of([train, train], microbatches)

    # Each layer keeps the input of its gelu and its output, which the next layer or the loss needs.
    # On one rank one microbatch is open at a time.
    kept = 2 * LAYERS * LAYER_BYTES / microbatches
    assert kept <= found < 1.1 * kept


def test_checkpointed_modules_keep_their_inputs() -> None:
    found = activations_of([train, train], 1, checkpointed=True)

    kept = LAYERS * LAYER_BYTES  # with the result of the last one, without the batch
    assert kept <= found < 1.1 * kept


def test_a_step_without_backward_keeps_none() -> None:
    assert activations_of([train, evaluate], 1) == 0


def test_workspaces_of_threads_are_no_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS takes one for each thread that multiplies, at its first time: in the first step."""
    held = {"tensors": 100, "workspaces": 0}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: sum(held.values()))
    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: held.update(workspaces=0), raising=False
    )
    before = memory_ledger.memory_in_use()
    held.update(tensors=130, workspaces=4 << 25)

    assert memory_ledger.memory_in_use() - before == 30
    assert held["workspaces"] == 0, "they stay while they are not needed"
