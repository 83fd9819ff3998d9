# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers against their definitions, element by element in doubles."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.optimizers import (
    FusedAdam,
    FusedLAMB,
    FusedLamb,
    FusedNovoGrad,
)

Vector = list[float]
SHAPES = [(3, 2), (5,), (1,)]


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(4)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in SHAPES
    ]


def gradient(step: int, index: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(10 * step + index)
    return torch.randn(SHAPES[index], generator=generator, dtype=torch.float64) * (step + 1)


def run(make: Callable[..., torch.optim.Optimizer], steps: int = 4, **options: Any) -> list[Vector]:
    weights = parameters()
    optimizer = make(weights, **options)
    for step in range(steps):
        for index, weight in enumerate(weights):
            weight.grad = gradient(step, index)
        optimizer.step()
    return [weight.detach().flatten().tolist() for weight in weights]


def norm(values: Vector) -> float:
    return math.sqrt(sum(value * value for value in values))


def assert_close(found: list[Vector], expected: list[Vector]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("decoupled", [True, False])
def test_adam_is_torchs(decoupled: bool) -> None:
    options = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.3}
    torchs = torch.optim.AdamW if decoupled else torch.optim.Adam

    assert_close(run(FusedAdam, adam_w_mode=decoupled, **options), run(torchs, **options))


def lamb_alone(steps: int, lr: float, decay: float, most: float, nvlamb: bool, bias: bool,
               averaging: bool, decoupled: bool) -> list[Vector]:  # fmt: skip
    beta1, beta2, eps = 0.9, 0.999, 1e-6
    weights = [p.detach().flatten().tolist() for p in parameters()]
    first = [[0.0] * len(w) for w in weights]
    second = [[0.0] * len(w) for w in weights]
    for step in range(1, steps + 1):
        grads = [gradient(step - 1, i).flatten().tolist() for i in range(len(weights))]
        total = norm([g for grad in grads for g in grad])
        clip = most / total if most and total > most else 1.0
        for i, weight in enumerate(weights):
            change = []
            for j, value in enumerate(weight):
                g = grads[i][j] * clip + (0 if decoupled else decay * value)
                first[i][j] = beta1 * first[i][j] + (1 - beta1 if averaging else 1) * g
                second[i][j] = beta2 * second[i][j] + (1 - beta2) * g * g
                m = first[i][j] / (1 - beta1**step if bias else 1)
                v = second[i][j] / (1 - beta2**step if bias else 1)
                change.append(m / (math.sqrt(v) + eps) + (decay * value if decoupled else 0))
            ratio = 1.0
            if (decay or nvlamb) and norm(weight) and norm(change):
                ratio = norm(weight) / norm(change)
            weights[i] = [w - lr * ratio * c for w, c in zip(weight, change, strict=True)]
    return weights


@pytest.mark.parametrize(
    ("decay", "most", "nvlamb", "bias", "averaging", "decoupled"),
    [
        (0.01, 1.0, False, True, True, True),
        (0.0, 1.0, False, True, True, True),
        (0.0, 1.0, True, True, True, True),
        (0.2, 0.0, False, False, False, True),
        (0.2, 100.0, True, True, True, False),
    ],
)
def test_lamb_is_its_definition(
    decay: float, most: float, nvlamb: bool, bias: bool, averaging: bool, decoupled: bool
) -> None:
    found = run(
        FusedLAMB, lr=0.1, weight_decay=decay, max_grad_norm=most, use_nvlamb=nvlamb,
        bias_correction=bias, grad_averaging=averaging, adam_w_mode=decoupled,
    )  # fmt: skip

    assert_close(found, lamb_alone(4, 0.1, decay, most, nvlamb, bias, averaging, decoupled))
    assert FusedLamb is FusedLAMB


def novograd_alone(steps: int, decay: float, inside: bool, bias: bool, largest: bool,
                   zero: bool) -> list[Vector]:  # fmt: skip
    lr, beta1, beta2, eps = 0.1, 0.9, 0.98, 1e-8
    weights = [p.detach().flatten().tolist() for p in parameters()]
    first = [[0.0] * len(w) for w in weights]
    smoothed: list[float | None] = [0.0 if zero else None] * len(weights)
    for step in range(1, steps + 1):
        for i, weight in enumerate(weights):
            grad = gradient(step - 1, i).flatten().tolist()
            size = max(map(abs, grad)) if largest else norm(grad)
            before = size if smoothed[i] is None else smoothed[i]
            now = beta2 * before + (1 - beta2) * size
            if not largest:
                now = math.sqrt(beta2 * before**2 + (1 - beta2) * size**2)
            smoothed[i] = now
            scale = math.sqrt(1 - beta2**step) if bias else 1
            for j, value in enumerate(weight):
                g = grad[j] / (now / scale + eps) + (decay * value if inside else 0)
                first[i][j] = beta1 * first[i][j] + (1 - beta1) * g
                m = first[i][j] / (1 - beta1**step if bias else 1)
                weight[j] = value - lr * (m + (0 if inside else decay * value))
    return weights


@pytest.mark.parametrize(
    ("decay", "inside", "bias", "largest", "zero"),
    [
        (0.0, False, True, False, False),
        (0.1, False, True, False, True),
        (0.1, True, False, True, False),
    ],
)
def test_novograd_is_its_definition(
    decay: float, inside: bool, bias: bool, largest: bool, zero: bool
) -> None:
    found = run(
        FusedNovoGrad, lr=0.1, betas=(0.9, 0.98), weight_decay=decay, reg_inside_moment=inside,
        bias_correction=bias, norm_type=0 if largest else 2, init_zero=zero,
    )  # fmt: skip

    assert_close(found, novograd_alone(4, decay, inside, bias, largest, zero))


@pytest.mark.parametrize("make", [FusedAdam, FusedLAMB, FusedNovoGrad])
def test_state_survives_and_steps_are_counted(make: Any) -> None:
    straight = run(make, steps=4)
    weights = parameters()
    optimizer = make(weights)
    for step in range(4):
        if step == 2:
            state = optimizer.state_dict()
            optimizer = make(weights)
            optimizer.load_state_dict(state)
        for index, weight in enumerate(weights):
            weight.grad = gradient(step, index)
        optimizer.step()

    assert_close([weight.detach().flatten().tolist() for weight in weights], straight)
    assert [group["step"] for group in optimizer.param_groups] == [4]


@pytest.mark.parametrize("make", [FusedAdam, FusedLAMB, FusedNovoGrad])
def test_nothing_to_step_is_fine(make: Any) -> None:
    weights = parameters()

    make(weights).step()

    assert torch.equal(weights[0], parameters()[0])


@pytest.mark.parametrize("make", [FusedAdam, FusedLAMB, FusedNovoGrad])
@pytest.mark.parametrize(
    "options", [{"amsgrad": True}, {"betas": (1.0, 0.9)}, {"lr": -1.0}, {"eps": -1.0}]
)
def test_odd_arguments_are_refused(make: Any, options: dict[str, Any]) -> None:
    with pytest.raises(SMPValidationError, match=make.__name__):
        make(parameters(), **options)


def test_scheduler_takes_the_wrapped_optimizer(smp: ModuleType) -> None:
    layer = torch.nn.Linear(2, 2)
    smp.DistributedModel(layer)
    optimizer = smp.DistributedOptimizer(FusedLAMB(layer.parameters(), lr=1.0))

    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    schedule.step()

    assert optimizer.param_groups[0]["lr"] == 0.5
