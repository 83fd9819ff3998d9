# SPDX-License-Identifier: Apache-2.0
"""Functions of `torch.nn.init` do to parameters without storage what they do to any."""

from collections.abc import Callable

import pytest
import torch
from smdistributed.modelparallel.torch._delayed.delayed_parameters import delayed, materialize
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from torch import nn

INITIALIZERS: list[tuple[str, Callable[[torch.Tensor], object]]] = [
    ("trunc_normal_", lambda t: nn.init.trunc_normal_(t, std=0.02)),
    ("a tail", lambda t: nn.init.trunc_normal_(t, 0, 1, a=1.5, b=3)),
    ("orthogonal_", nn.init.orthogonal_),
    ("dirac_", lambda t: nn.init.dirac_(t.view(8, 4, 2))),
    ("kaiming_normal_", nn.init.kaiming_normal_),
    ("eye_", nn.init.eye_),
    ("a value assigned", lambda t: t.data.__setitem__((slice(2), 3), 0.5)),
    ("rows assigned", lambda t: t.data.__setitem__(torch.tensor([1, 5]), 2)),
    ("a mask assigned", lambda t: t.data.__setitem__(torch.eye(8, dtype=torch.bool), -1.0)),
]


def made(initialize: Callable[[torch.Tensor], object]) -> nn.Module:
    first, after = nn.Linear(8, 8), nn.Linear(3, 3)
    initialize(first.weight)
    nn.init.uniform_(after.weight)
    return nn.ModuleList([first, after])


@pytest.mark.parametrize(
    "initialize", [f for _, f in INITIALIZERS], ids=[name for name, _ in INITIALIZERS]
)
def test_values_are_those_without_delay(initialize):
    torch.manual_seed(3)
    expected = made(initialize)
    torch.manual_seed(3)

    with delayed():
        module = made(initialize)
    materialize(module, module.modules())

    for value, other in zip(module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(value, other)


def test_a_value_that_nobody_made_is_refused():
    with delayed():
        layer = nn.Linear(8, 8)
        layer.weight.data.copy_(torch.empty(8, 8, device="meta").view(8, 8))
    layer.bias.data = torch.empty(8, device="meta")

    with pytest.raises(SMPUnsupportedError, match="did not make"):
        materialize(layer, [layer])
