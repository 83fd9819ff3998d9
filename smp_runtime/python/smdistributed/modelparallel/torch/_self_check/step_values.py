# SPDX-License-Identifier: Apache-2.0
"""Arguments of a step's microbatches on their way to the first rank, and results by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from smdistributed.modelparallel.torch._ranks.comm import decode, encode
from smdistributed.modelparallel.torch._self_check.tolerances import OUTPUT_FLOOR, difference
from smdistributed.modelparallel.torch.exceptions import SMPValidationError


@dataclass(frozen=True)
class KeptInputs:
    """Leaves of a structure, as bytes; None for one that stays, such as the model: the receiver
    has one of its own in its place."""

    leaves: list[bytes | None]


def keep_inputs(arguments: Any) -> KeptInputs:
    """Copies what a step may change or a receiver needs.

    >>> kept = keep_inputs([torch.zeros(2), "mean", torch.nn.Linear])
    >>> restore_inputs(kept, [torch.ones(2), "sum", torch.nn.Linear])
    [tensor([0., 0.]), 'mean', <class 'torch.nn.modules.linear.Linear'>]
    """
    return KeptInputs([_bytes_of(leaf) for leaf in tree_flatten(arguments)[0]])


def restore_inputs(kept: KeptInputs, own: Any) -> Any:
    """The structure of ``own`` with the leaves that were kept. Raises ValueError where there is
    another number of them."""
    leaves, structure = tree_flatten(own)
    if len(leaves) != len(kept.leaves):
        raise ValueError(
            f"a replica was given {len(kept.leaves)} values as arguments, and rank 0 {len(leaves)}"
        )
    return tree_unflatten(_restored(leaves, kept.leaves), structure)


def _restored(leaves: Sequence[Any], kept: Sequence[bytes | None]) -> list[Any]:
    return [leaf if data is None else _on_host(decode(data))
            for leaf, data in zip(leaves, kept, strict=True)]  # fmt: skip


def _bytes_of(leaf: Any) -> bytes | None:
    if isinstance(leaf, (torch.nn.Module, torch.optim.Optimizer)) or callable(leaf):
        return None
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu().clone().requires_grad_(leaf.requires_grad)
    try:
        return encode(leaf)
    except SMPValidationError:
        return None


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return value.detach().cpu().requires_grad_(value.requires_grad)
    return value


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
        return difference(_real(a), _real(b), OUTPUT_FLOOR)
    return float(exact and not torch.equal(a, b))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
