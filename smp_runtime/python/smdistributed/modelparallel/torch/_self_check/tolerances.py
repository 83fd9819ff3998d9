# SPDX-License-Identifier: Apache-2.0
"""Allowed differences between two computations of the same numbers.

Differences are measured over a whole tensor, by the 2-norm, relative to the plain one. In 32 and 64
bits they come from sums in another order: of ``n`` terms, a random walk of ``sqrt(n)`` roundings of
half an ``eps``; 1024 ``eps`` cover sums of four million terms. In 16 bits each operation rounds its
result anew, while sums are held in 32 bits: 8 ``eps`` cover 64 operations one behind the other.
Where the same kernels run on the same pieces, results are equal but for the rare element that falls
on the other side of a rounding: an eighth of an ``eps``. Layers that tensor ranks split take norms
and losses in 32 bits, whatever their parameters have.

A tensor that is zero but for rounding, as the gradient of a bias before a normalization, has no
relative difference. So norms count as if elements were at least ``FLOOR`` of the largest tensor's,
of outputs at least a thousandth.
"""

from __future__ import annotations

import math

import torch

FLOOR = 2**-3
#: For results of steps, which may be as small as they like.
OUTPUT_FLOOR = 1e-3
_NARROW = (torch.float16, torch.bfloat16)
_UPDATE_ULPS = 4


def tolerance(dtype: torch.dtype, *, same_kernels: bool) -> float:
    """The largest relative difference of what was computed in ``dtype``.

    >>> tolerance(torch.float32, same_kernels=True)
    0.0001220703125
    >>> tolerance(torch.bfloat16, same_kernels=False)
    0.0625
    """
    eps = torch.finfo(dtype).eps
    if dtype in _NARROW:
        return eps / 8 if same_kernels else 8 * eps
    if same_kernels:
        return 1024 * eps
    if dtype is torch.float32 and _takes_shortcuts():
        return 8 * 2.0**-10  # TF32 has as many bits as float16
    return 1024 * max(eps, torch.finfo(torch.float32).eps)


def _takes_shortcuts() -> bool:
    return torch.cuda.is_available() and (
        torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    )


def difference(found: torch.Tensor, plain: torch.Tensor, floor: float) -> float:
    """The norm of what differs relative to that of ``plain``, whose elements count as ``floor`` at
    least, in the mean; infinite where one is finite and the other is not.

    >>> difference(torch.tensor([1.0, 1.5]), torch.tensor([1.0, 1.0]), 0.0)
    0.35355339059327373
    """
    if found.shape != plain.shape:
        return math.inf
    one, other = found.detach().double(), plain.detach().double()
    odd = ~(one.isfinite() & other.isfinite())
    if bool(odd.any()):
        same = torch.where(one.isnan(), other.isnan(), one == other)
        if not bool(same[odd].all()):
            return math.inf
        one, other = one.masked_fill(odd, 0), other.masked_fill(odd, 0)
    apart = float(torch.linalg.vector_norm(one - other))
    if apart == 0:
        return 0.0
    scale = max(float(torch.linalg.vector_norm(other)), floor * math.sqrt(max(1, plain.numel())))
    return apart / scale if scale > 0 else math.inf


def mean_size(tensor: torch.Tensor) -> float:
    """The root of the mean square of the finite elements."""
    finite = torch.nan_to_num(tensor.detach().double(), 0.0, 0.0, 0.0)
    return float(torch.linalg.vector_norm(finite)) / math.sqrt(max(1, tensor.numel()))


def allowed_after_update(
    before: torch.Tensor, plain: torch.Tensor, *, relative: float = 2**-10
) -> float:
    """Largest distance from ``plain`` that is allowed to a weight that an update took from
    ``before`` there, by the norm of the difference: a few roundings of the weight, and a thousandth
    of the way. The update reads the gradients that the job has, so that nothing else adds up."""
    eps = torch.finfo(plain.dtype).eps if plain.is_floating_point() else 0.0
    size = float(torch.linalg.vector_norm(plain.double()))
    way = float(torch.linalg.vector_norm(plain.double() - before.double()))
    return _UPDATE_ULPS * eps * size + relative * way
