# SPDX-License-Identifier: Apache-2.0
"""DelayedParamIniter with modules that say nowhere but in their creation how they begin."""

from __future__ import annotations

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker.delayed_param import DelayedParamIniter
from torch import nn


class Norm(nn.Module):
    """As norms of Transformers 4; of some families the weight is what is added to one."""

    def __init__(self, size: int, eps: float = 1e-6, begin: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), begin))


class OneMore(Norm):
    def __init__(self, dim: int) -> None:
        super().__init__(dim, begin=0.0)


class Unset(Norm):
    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.weight = nn.Parameter(torch.empty(dim))


class TwoSizes(Norm):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim * heads)


class Matrix(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dim))


def initialised(model: nn.Module) -> nn.Module:
    initer = DelayedParamIniter(model)
    with initer.validate_params_and_buffers_inited():
        for module in model.modules():
            initer.get_param_init_fn()(module)
    return model


def test_vectors_begin_as_those_of_a_module_that_is_created() -> None:
    with torch.device("meta"):
        model = nn.Sequential(Norm(3, 1e-5), OneMore(4))

    first, second = initialised(model)

    assert first.weight.tolist() == [1.0] * 3
    assert second.weight.tolist() == [0.0] * 4
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("kind", ["Unset(3)", "TwoSizes(3, 2)", "Matrix(3)"])
def test_what_creation_does_not_tell_is_refused(kind: str) -> None:
    with torch.device("meta"):
        model = eval(kind)

    with pytest.raises(SMPValidationError, match="nothing has initialised weight"):
        initialised(model)
