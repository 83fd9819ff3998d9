# SPDX-License-Identifier: Apache-2.0
"""Results of a step's function for each microbatch, as values with their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from smdistributed.modelparallel.torch._self_check.tolerances import difference, output_floor

Leaves = list[tuple[str, Any]]


def leaves_of(outputs: Sequence[Any]) -> list[Leaves]:
    """Tensors, on the CPU, and plain numbers and texts of each microbatch; other objects are None.

    >>> leaves_of([{"loss": 0.5}])
    [[("['loss']", 0.5)]]
    """
    return [
        [(keystr(path), _portable(value)) for path, value in tree_flatten_with_path(output)[0]]
        for output in outputs
    ]


def _portable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.is_sparse else value.detach()
        return dense.to("cpu", copy=True)
    return value if isinstance(value, (int, float, complex, str)) else None


def results_apart(found: Leaves, plain: Leaves, *, exact: bool) -> list[tuple[str, float]]:
    """Distances between the results of one microbatch, place by place. Numbers without fractions,
    such as predicted classes, are compared if ``exact``: rounding may decide them.

    >>> results_apart([("['loss']", 0.5)], [("['loss']", 0.25)], exact=True)
    [("['loss']", 1.0)]
    """
    if [place for place, _ in found] != [place for place, _ in plain]:
        return [(f" (with values at {[place for place, _ in found]})", float("inf"))]
    return [(place, _apart(one, other, exact))
            for (place, one), (_, other) in zip(found, plain, strict=True)]  # fmt: skip


def _apart(one: Any, other: Any, exact: bool) -> float:
    if one is None or other is None or type(one) is not type(other):
        return 0.0 if one is None or other is None else float("inf")
    if isinstance(one, str):
        return float(one != other and exact)
    a, b = torch.as_tensor(one), torch.as_tensor(other)
    if a.is_floating_point() or a.is_complex():
        return difference(_real(a), _real(b), output_floor())
    return float(exact and not torch.equal(a, b))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
