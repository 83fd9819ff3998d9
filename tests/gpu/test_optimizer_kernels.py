# SPDX-License-Identifier: Apache-2.0
"""Kernels over flat state: what the GPU makes is what the CPU makes, to the bit."""

import math

import pytest
import torch
from smdistributed import _runtime

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SIZES = [1, 4095, 4096, 4097, 20000, 0, 7]  # around a block's 4096 elements


def waves(count: int, pace: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.sin(pace * torch.arange(count, dtype=torch.float64)).to(dtype)


def stepped(device: torch.device, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    """Parameters and moments after two steps of Adam."""
    lists = [[waves(size, pace, dtype).to(device) for size in SIZES] for pace in (0.1, 0.2, 0.3)]
    second = [waves(size, 0.4, dtype).abs().add(0.1).to(device) for size in SIZES]
    weights, grads, first = lists
    for step in (1, 2):
        _runtime.adam_step(
            weights, grads, first, second,
            rate=0.01, beta1=0.9, beta2=0.99, epsilon=1e-6, decay=0.1, decoupled=step == 1,
            scale1=1 - 0.9**step, scale2=1 - 0.99**step,
        )  # fmt: skip
    return [[one.cpu() for one in kind] for kind in (weights, first, second)]


@pytest.mark.parametrize("dtype", TYPES)
def test_adam_is_the_same_everywhere(device: torch.device, dtype: torch.dtype) -> None:
    found, on_cpu = stepped(device, dtype), stepped(torch.device("cpu"), dtype)
    exact = stepped(torch.device("cpu"), torch.float64)
    # Each of two steps rounds a moment twice or so, and no moment under the root is small.
    tolerance = {torch.float64: 0.0, torch.float32: 1e-4}.get(dtype, 8e-2)

    for ones, others, precise in zip(found, on_cpu, exact, strict=True):
        for one, other, wide in zip(ones, others, precise, strict=True):
            assert torch.equal(one, other)
            assert torch.allclose(one.double(), wide, rtol=tolerance, atol=tolerance)


def test_adam_takes_tensors_with_other_strides(device: torch.device) -> None:
    weight, grad = (
        waves(12, 0.1, torch.float32).view(3, 4),
        waves(12, 0.2, torch.float32).view(4, 3),
    )
    lists = [[weight.clone().to(device)], [grad.t().to(device)]]
    plain = [[weight.clone()], [grad.t().contiguous()]]
    for tensors in (lists, plain):
        for _ in range(2):
            tensors.append([torch.zeros_like(tensors[0][0])])
        version = tensors[0][0]._version
        _runtime.adam_step(
            *tensors, rate=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, decay=0.0, decoupled=True,
            scale1=1.0, scale2=1.0,
        )  # fmt: skip
        assert tensors[0][0]._version > version  # autograd sees that it changed

    assert torch.equal(lists[0][0].cpu(), plain[0][0])
    assert torch.equal(lists[3][0].cpu(), plain[3][0])


@pytest.mark.parametrize("dtype", TYPES)
def test_squares_are_added_up(device: torch.device, dtype: torch.dtype) -> None:
    values = [(torch.arange(size) % 17 - 8).to(dtype) for size in SIZES]  # exact in all types

    squares = _runtime.sum_of_squares([one.to(device) for one in values])

    assert squares == sum(one.double().square().sum().item() for one in values)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_adam_scales_gradients_itself(device: torch.device, factor: float) -> None:
    """As if they had been multiplied before: numbers are few, so that products are exact."""
    grad = (torch.arange(5000) % 17 - 8).float()
    found = []
    for inside, grads in ((factor, grad), (1.0, grad * factor)):
        lists = [[one.to(device)] for one in (waves(5000, 0.1, torch.float32), grads.clone())]
        lists += [[torch.zeros(5000, device=device)] for _ in range(2)]
        _runtime.adam_step(
            *lists, rate=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, decay=0.1, decoupled=False,
            scale1=0.1, scale2=0.01, factor=inside,
        )  # fmt: skip
        assert torch.equal(lists[1][0].cpu(), grads)  # gradients stay as they are
        found.append([one[0].cpu() for one in (lists[0], lists[2], lists[3])])

    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", [0, 4096, 9999])
def test_overflows_are_seen(device: torch.device, bad: float, place: int) -> None:
    values = torch.ones(10000, device=device)
    values[place] = bad

    assert not math.isfinite(_runtime.sum_of_squares([values]))


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        *zip(TYPES, TYPES, strict=True),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_tensors_are_laid_end_to_end(
    device: torch.device, dtype: torch.dtype, target: torch.dtype
) -> None:
    source = (torch.arange(6000) % 11).to(dtype).view(60, 100).t()  # with gaps
    added = (torch.arange(6000) % 7).to(target)
    flat = torch.full((20000,), -1.0, dtype=target, device=device)
    parts = [source.to(device), None, source.to(device)]
    more = [None, added.to(device), added.to(device)]

    _runtime.flatten(flat, [0, 6000, 12000, 18000], [6000, 6000, 6000, 1000],
                     [*parts, None], [*more, None])  # fmt: skip

    line = source.reshape(-1).to(target)
    rest = torch.cat([torch.zeros(1000), torch.full((1000,), -1.0)]).to(target)
    assert torch.equal(flat.cpu(), torch.cat([line, added, line + added, rest]))
