# SPDX-License-Identifier: Apache-2.0
"""Models whose parameters get their values late."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import smdistributed.modelparallel.torch as library
import torch
from smdistributed.modelparallel.torch._delayed.delayed_parameters import delayed, materialize
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from torch import nn


@pytest.fixture
def delaying(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    library.init({"delayed_parameter_initialization": True})
    yield library
    library.shutdown()


def test_setting_makes_model_creation_delay(delaying: ModuleType) -> None:
    torch.manual_seed(1)
    eager = nn.Linear(2, 2, dtype=torch.float64)
    torch.manual_seed(1)
    with delaying.model_creation(dtype=torch.float64):
        layer = nn.Linear(2, 2)
    assert layer.weight.is_meta

    delaying.DistributedModel(layer)

    assert torch.equal(layer.weight, eager.weight)


def test_contexts_go_on_with_one_sequence_of_random_numbers(smp: ModuleType) -> None:
    torch.manual_seed(1)
    eager = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    torch.manual_seed(1)
    with smp.delay_param_initialization():
        first = nn.Linear(2, 2)
    with smp.delay_param_initialization():
        second = nn.Linear(2, 2)
    model = nn.Sequential(first, second)

    smp.DistributedModel(model)

    for late, early in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(late, early)


def test_optimizer_made_before_keeps_its_parameters(smp: ModuleType) -> None:
    with smp.delay_param_initialization():
        layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    model = smp.DistributedModel(layer)
    before = layer.weight.detach().clone()

    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    assert torch.equal(layer.weight, before - 1)


def test_other_draws_give_numbers_of_its_own(smp: ModuleType) -> None:
    torch.manual_seed(1)
    with smp.delay_param_initialization():
        layer = nn.Linear(2, 2)
        drawn = torch.rand(2, 2)
    smp.DistributedModel(layer)
    torch.manual_seed(1)

    assert torch.equal(drawn, torch.rand(2, 2))
    assert not torch.allclose(layer.weight, nn.Linear(2, 2).weight)
    assert layer.weight.abs().max() <= 0.5**0.5


def test_values_that_are_not_there_yet_cannot_be_read(smp: ModuleType) -> None:
    with (
        pytest.raises(SMPUnsupportedError, match="initialization is delayed"),
        smp.delay_param_initialization(),
    ):
        nn.Linear(2, 2).weight.sum().item()


def test_foreign_parameters_without_storage_are_refused(smp: ModuleType) -> None:
    with pytest.raises(SMPUnsupportedError, match="on the meta device"):
        smp.DistributedModel(nn.Linear(2, 2, device="meta"))


def test_a_seed_inside_of_the_delay_counts() -> None:
    def build() -> nn.Module:
        torch.manual_seed(3)
        first = nn.Linear(2, 2)
        torch.manual_seed(4)
        return nn.Sequential(first, nn.Linear(2, 2))

    with delayed():
        model = build()
    materialize(model, list(model.modules()))

    expected = build()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, expected.get_parameter(name)), name
