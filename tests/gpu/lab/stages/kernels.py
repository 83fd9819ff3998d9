# SPDX-License-Identifier: Apache-2.0
"""Our kernels beside torch's, by turns: bytes a second, share of a copy's, times of torch's time.

A kernel passes with four fifths of the copy's rate, or when it takes no longer than torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from measuring import DEVICE, GPU, by_turns, cache_bytes, large, report
from smdistributed import _runtime

SHARE = 0.8
Work = Callable[[], object]


class Row(NamedTuple):
    name: str
    moved: int
    """Bytes that have to travel between the device and its memory."""
    ours: Work
    torchs: Work
    has_goal: bool = True


def copy_rate() -> float:
    source = torch.randn(large(1 << 30) // 4, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / by_turns({"copy": lambda: target.copy_(source)}, 10)["copy"]


def optimizer_rows() -> list[Row]:
    """Over many parameters of different sizes, as a model has them."""
    sizes = [1 << 24, 3 << 20, 1 << 20, 4096, 1000] * 8 if GPU else [1000, 4096, 1 << 12]
    parameters, gradients = ([torch.randn(n, device=DEVICE) for n in sizes] for _ in range(2))
    first = [torch.zeros_like(one) for one in parameters]
    second = [torch.zeros_like(one) for one in parameters]
    steps = [torch.ones((), device=DEVICE) for _ in sizes]
    numbers = {"rate": 1e-4, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "decay": 0.1}
    count = sum(sizes)

    def ours() -> None:
        _runtime.adam_step(parameters, gradients, first, second, decoupled=True, scale1=0.1,
                           scale2=0.01, **numbers)  # fmt: skip

    def torchs() -> None:
        torch._fused_adamw_(parameters, gradients, first, second, [], steps, lr=1e-4, beta1=0.9,
                            beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False,
                            maximize=False)  # fmt: skip

    flat = torch.empty(count, device=DEVICE)
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    half = [one.bfloat16() for one in gradients]
    nothing: list[torch.Tensor | None] = [None] * len(sizes)

    def laid_by_torch() -> None:
        torch.cat(half, out=flat) if not GPU else flat.copy_(torch.cat(half))

    return [
        Row("Adam, fp32", 7 * 4 * count, ours, torchs),
        Row("squares, fp32", 4 * count, lambda: _runtime.sum_of_squares(gradients),
         lambda: torch.stack(torch._foreach_norm(gradients)).square().sum().item()),
        Row("flatten, bf16 to fp32", 6 * count,
         lambda: _runtime.flatten(flat, offsets, sizes, half, nothing), laid_by_torch),
    ]  # fmt: skip


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16).requires_grad_()


def pair(name: str, forward_bytes: int, backward_bytes: int, leaves: list[torch.Tensor],
         ours: Callable[..., Any], torchs: Callable[..., Any]) -> list[Row]:  # fmt: skip
    """Rows of a function and of its gradient."""
    results = [function(*leaves) for function in (ours, torchs)]
    slopes = [torch.randn_like(result) for result in results]

    def quietly(function: Callable[..., Any]) -> Work:
        def work() -> None:
            with torch.no_grad():
                function(*leaves)

        return work

    def back(number: int) -> Work:
        return lambda: torch.autograd.grad(
            results[number], leaves, slopes[number], retain_graph=True
        )

    return [
        Row(name, forward_bytes, quietly(ours), quietly(torchs)),
        Row(f"{name}, gradient", backward_bytes, back(0), back(1)),
    ]


def layer_rows() -> list[Callable[[], list[Row]]]:
    """Made one after the other: together they would not fit every GPU."""
    rows = max(1, large(1 << 29) // (2 * 4096))
    # On one rank torch's kernel is used; an exchange without a group takes the other rank's slice
    # to be as this one's.
    alone, both = _runtime.TensorExchange("", 1, 0), _runtime.TensorExchange("", 2, 0)

    def gelu() -> list[Row]:
        states, bias = leaf(rows, 4096), leaf(4096)
        return pair("bias-GELU, bf16", 2 * states.nbytes, 3 * states.nbytes, [states, bias],
                    lambda x, b: _runtime.bias_gelu(x, b, "tanh"),
                    lambda x, b: F.gelu(x + b, approximate="tanh"))  # fmt: skip

    def norm() -> list[Row]:
        states, weight, bias = leaf(rows, 4096), leaf(4096), leaf(4096)
        # Both read twice: ranks exchange sums of each row in between.
        return pair("layer norm of a slice, bf16", 3 * states.nbytes, 5 * states.nbytes,
                    [states, weight, bias],
                    lambda x, w, b: both.layer_norm(x, w, b, 1e-5),
                    lambda x, w, b: F.layer_norm(x, (4096,), w, b, 1e-5))  # fmt: skip

    def softmax() -> list[Row]:
        keys = 1024 if GPU else 64
        heads = max(1, large(1 << 29) // (2 * keys * keys))
        scores = leaf(1, heads, keys, keys)
        mask = torch.ones(keys, keys, device=DEVICE, dtype=torch.bool).triu(1)
        # Half of what is read is masked, and all of it is written.
        return pair("causal softmax, bf16", scores.nbytes * 3 // 2, 3 * scores.nbytes, [scores],
                    lambda x: _runtime.masked_softmax(x, None, True, None),
                    lambda x: x.masked_fill(mask, float("-inf")).softmax(-1))  # fmt: skip

    def loss() -> list[Row]:
        words = 50304 if GPU else 512
        scores = leaf(max(8, large(1 << 29) // (2 * words)), words)
        labels = torch.randint(0, words, (scores.shape[0],), device=DEVICE)
        return pair("vocabulary loss, bf16", scores.nbytes, 2 * scores.nbytes, [scores],
                    lambda x: alone.vocabulary_loss(x, labels, -100),
                    lambda x: F.cross_entropy(x, labels, reduction="none"))  # fmt: skip

    def attention() -> list[Row]:
        """Cost of a mask that torch's fused attention does not take: it takes causal ones, and
        layers use it then."""
        shape = (8, 16, 1024, 64) if GPU else (1, 2, 64, 16)
        parts = [leaf(*shape) for _ in range(3)]

        def by_softmax(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(shape[-1]))
            return _runtime.masked_softmax(scores, None, True, None) @ v

        rows = pair("attention by softmax, bf16", 4 * parts[0].nbytes, 8 * parts[0].nbytes, parts,
                    by_softmax, lambda q, k, v: F.scaled_dot_product_attention(
                        q, k, v, is_causal=True))  # fmt: skip
        return [row._replace(has_goal=False) for row in rows]

    return [optimizer_rows, gelu, norm, softmax, loss, attention]


def main() -> None:
    rate = copy_rate()
    found: dict[str, Any] = {"copy_bytes_a_second": rate, "cache_bytes": cache_bytes(), "rows": []}
    for make in layer_rows():
        for row in make():
            seconds = by_turns({"ours": row.ours, "torch": row.torchs}, 20)
            speed = row.moved / seconds["ours"]
            passes = speed >= SHARE * rate or seconds["ours"] <= seconds["torch"]
            found["rows"].append(
                {
                    "kernel": row.name,
                    "bytes_a_second": speed,
                    "torch_bytes_a_second": row.moved / seconds["torch"],
                    "share_of_copy": speed / rate,
                    "times_torch": seconds["ours"] / seconds["torch"],
                    "passes": passes if row.has_goal else None,
                }
            )
            report(found)  # as far as it came
        if GPU:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
