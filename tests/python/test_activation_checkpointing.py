# SPDX-License-Identifier: Apache-2.0
"""Arguments of activation checkpointing that are refused."""

from types import ModuleType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from torch import nn


class OwnForward(nn.Sequential):
    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        for child in self:
            x = child(x) * scale
        return x


@pytest.fixture
def module(smp: ModuleType) -> nn.Module:
    module = nn.ModuleDict(
        {
            "sequence": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),
            "own": OwnForward(nn.Linear(2, 2), nn.Tanh()),
            "layer": nn.Linear(2, 2),
        }
    )
    smp.DistributedModel(module)
    return module


@pytest.mark.parametrize("strategy", ["all", "group_0", "group_", "group_x", 3, ""])
def test_unknown_strategies_are_refused(smp: ModuleType, module: Any, strategy: Any) -> None:
    with pytest.raises(SMPValidationError, match="it is each, contiguous or group_N"):
        smp.set_activation_checkpointing(module["sequence"], strategy=strategy)
    with pytest.raises(SMPValidationError, match="it is each, contiguous or group_N"):
        smp.checkpoint_sequential(module["sequence"], torch.ones(1, 2), strategy=strategy)


def test_groups_need_a_sequence(smp: ModuleType, module: Any) -> None:
    for arguments in ({"strategy": "contiguous"}, {"pack_args_as_tuple": True}):
        with pytest.raises(SMPValidationError, match=r"are for nn\.Sequential, this is Linear"):
            smp.set_activation_checkpointing(module["layer"], **arguments)
    with pytest.raises(SMPValidationError, match=r"it takes nn\.Sequential"):
        smp.checkpoint_sequential(module["layer"], torch.ones(1, 2))
    with pytest.raises(SMPValidationError, match="has a forward of its own"):
        smp.set_activation_checkpointing(module["own"], strategy="contiguous")


def test_sequence_with_a_forward_of_its_own_keeps_it(smp: ModuleType, module: Any) -> None:
    x = torch.ones(1, 2, requires_grad=True)
    expected = module["own"](x, scale=2.0)

    smp.set_activation_checkpointing(module["own"])

    assert torch.equal(module["own"](x, scale=2.0), expected)


def test_functions_are_refused(smp: ModuleType, module: Any) -> None:
    with pytest.raises(SMPValidationError, match=r"takes an nn\.Module, not a function"):
        smp.patches.checkpoint.checkpoint(lambda x: x, torch.ones(1))
    with pytest.raises(SMPValidationError, match="expected a module"):
        smp.set_activation_checkpointing(torch.tanh)


def test_other_modules_are_refused(smp: ModuleType, module: Any) -> None:
    with pytest.raises(SMPValidationError, match="this Linear is no part of the model"):
        smp.set_activation_checkpointing(nn.Linear(1, 1))


def test_model_has_to_be_wrapped_before(smp: ModuleType) -> None:
    with pytest.raises(SMPValidationError, match="wrap the model first"):
        smp.set_activation_checkpointing(nn.Linear(1, 1))


def test_checkpointing_twice_recomputes_once(smp: ModuleType, module: Any) -> None:
    layer, calls = module["layer"], []
    plain = layer.forward
    layer.forward = lambda x: calls.append(1) or plain(x)
    smp.set_activation_checkpointing(layer)
    smp.set_activation_checkpointing(layer, preserve_rng_state=False)

    torch.tanh(layer(torch.ones(1, 2))).sum().backward()

    assert len(calls) == 2
