# SPDX-License-Identifier: Apache-2.0
"""First values of a split model, and its hooks, on one tensor rank."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError
from torch import nn


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


@pytest.mark.parametrize("give", [
    lambda layer, new: layer.load_state_dict({"weight": new, "bias": layer.bias.detach()}),
    lambda layer, new: layer.weight.data.copy_(new),
    lambda layer, new: setattr(layer, "weight", nn.Parameter(new)),
    lambda layer, new: setattr(layer.weight, "data", new.clone()),
], ids=["load_state_dict", "data", "parameter", "data assigned"])  # fmt: skip
def test_values_that_a_script_gave_are_kept(smp: ModuleType, give: object) -> None:
    new = torch.arange(16.0).view(4, 4)
    with smp.model_creation(tensor_parallelism=True):
        module = layers()
    give(module[0], new)  # type: ignore[operator]

    model = smp.DistributedModel(module)

    assert torch.equal(model.state_dict()["0.weight"], new)


@pytest.mark.parametrize("make", [
    lambda: nn.utils.skip_init(nn.Linear, 4, 4),
    lambda: nn.Linear(4, 4, device="meta").to_empty(device="cpu"),
], ids=["skip_init", "to_empty"])  # fmt: skip
def test_values_that_nobody_gave_are_drawn(smp: ModuleType, make: object) -> None:
    with smp.model_creation(tensor_parallelism=True):
        module = nn.Sequential(make(), nn.Linear(4, 2))  # type: ignore[operator]
    kept = module[1].weight.detach().clone()

    state = smp.DistributedModel(module).state_dict()

    assert 0 < state["0.weight"].abs().max() <= 0.5, "as torch's nn.Linear"
    assert torch.equal(state["1.weight"], kept)


def test_values_in_part_are_refused(smp: ModuleType) -> None:
    with smp.model_creation(tensor_parallelism=True):
        module = nn.Sequential(nn.utils.skip_init(nn.Linear, 4, 4))
    module[0].weight.data[0].zero_()

    with pytest.raises(SMPTensorParallelError, match=r"parameter 0\.\w+ has values in part"):
        smp.DistributedModel(module)


def test_a_layer_that_stays_is_not_trained_from_nothing(smp: ModuleType) -> None:
    with smp.model_creation(tensor_parallelism=True):
        module = nn.Sequential(nn.Linear(4, 4), nn.utils.skip_init(nn.LayerNorm, 4))

    with pytest.raises(SMPTensorParallelError, match=r"1\.weight was never initialized"):
        smp.DistributedModel(module)


def test_hooks_go_over_and_their_handles_remove_them(smp: ModuleType) -> None:
    module = layers()
    smp.set_tensor_parallelism(module)
    handle = module[0].register_forward_hook(lambda _module, _args, result: result * 2)
    module[1].register_forward_pre_hook(lambda _module, args: (args[0] + 1,))
    batch = torch.ones(2, 4)
    expected = module(batch)

    inner = smp.DistributedModel(module).get_module()
    seen = inner(batch)
    handle.remove()

    assert torch.equal(seen, expected)
    assert not torch.equal(inner(batch), expected)


def test_a_layer_with_weight_norm_stays_whole(smp: ModuleType) -> None:
    module = layers()
    module[0] = nn.utils.weight_norm(module[0])
    smp.set_tensor_parallelism(module)

    inner = smp.DistributedModel(module).get_module()

    assert [type(layer).__name__ for layer in inner] == ["Linear", "DistributedLinear"]
