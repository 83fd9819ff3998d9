# SPDX-License-Identifier: Apache-2.0
"""Fused steps of transformer layers, forward and backward, against torch's in doubles."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from smdistributed import _runtime

#: Tolerances of a result of size 1 or so: some units in the last place, for sums of a thousand
#: numbers.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
}


def waves(shape: tuple[int, ...], pace: float) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.sin(pace * torch.arange(count, dtype=torch.float64)).view(shape)


def compare(
    device: torch.device,
    dtype: torch.dtype,
    inputs: list[torch.Tensor],
    fused: Callable[..., torch.Tensor],
    plain: Callable[..., torch.Tensor],
) -> None:
    """Results and gradients of all inputs, the plain ones in doubles of the same numbers."""
    given = [one.to(dtype) for one in inputs]
    outcomes = []
    for function, where, kind in ((fused, device, dtype), (plain, "cpu", torch.float64)):
        leaves = [one.to(where, kind).requires_grad_() for one in given]
        result = function(*leaves)
        slope = waves(tuple(result.shape), 0.37).to(where, result.dtype)
        outcomes.append([result.detach(), *torch.autograd.grad(result, leaves, slope)])
    for found, expected in zip(*outcomes, strict=True):
        # Sums over rows are as large as the largest of what they add up.
        size = max(1.0, expected.abs().max().item())
        assert torch.allclose(
            found.cpu().double(), expected, rtol=0, atol=TOLERANCES[dtype] * size, equal_nan=True
        )


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("keys", [9, 304])  # the second fits loads of 16 bytes
def test_softmax(device: torch.device, dtype: torch.dtype, window: int | None, keys: int) -> None:
    queries = 7
    bias = waves((2, 1, 1, keys), 0.9).to(dtype)
    later = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
    hidden = (later > 0) | ((later <= -window) if window else torch.tensor(False))

    compare(
        device,
        dtype,
        [waves((2, 3, queries, keys), 1.7) * 4],
        lambda scores: _runtime.masked_softmax(scores, bias.to(device), True, window),
        lambda scores: (scores + bias.double()).masked_fill(hidden, float("-inf")).softmax(-1),
    )


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("width", [130, 2056])
def test_bias_gelu(device: torch.device, dtype: torch.dtype, approximate: str, width: int) -> None:
    compare(
        device,
        dtype,
        [waves((5, 7, width), 0.3) * 3, waves((width,), 0.7)],
        lambda states, bias: _runtime.bias_gelu(states, bias, approximate),
        lambda states, bias: F.gelu(states + bias, approximate=approximate),
    )


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("width", [5, 704])  # the second fits loads of 16 bytes
@pytest.mark.parametrize("ranks", [1, 2])
def test_layer_norm(device: torch.device, dtype: torch.dtype, width: int, ranks: int) -> None:
    # An exchange without a group takes other ranks' tensors to be as this one's.
    exchange = _runtime.TensorExchange("", ranks, 0)

    def plain(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Norm of all slices; each gets the gradient of its own, so their mean has that of one."""
        whole = [one.repeat(*[1] * (one.dim() - 1), ranks) for one in (states, weight, bias)]
        result = F.layer_norm(whole[0], (ranks * width,), whole[1], whole[2], 1e-3)
        return result.unflatten(-1, (ranks, width)).mean(-2)

    compare(
        device,
        dtype,
        [waves((3, 50, width), 1.1), waves((width,), 0.3), waves((width,), 0.2)],
        lambda states, weight, bias: exchange.layer_norm(states, weight, bias, 1e-3),
        plain,
    )


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("words", [11, 3000])
def test_vocabulary_loss(device: torch.device, dtype: torch.dtype, words: int) -> None:
    alone = _runtime.TensorExchange("", 1, 0)
    labels = (torch.arange(40) * 7) % words
    labels[5] = -100

    compare(
        device,
        dtype,
        [waves((40, words), 1.3) * 5],
        lambda scores: alone.vocabulary_loss(scores, labels.to(device), -100),
        lambda scores: F.cross_entropy(scores, labels, reduction="none", ignore_index=-100),
    )
