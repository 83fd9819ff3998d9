# SPDX-License-Identifier: Apache-2.0
"""The arguments of a step's microbatches as they were, on their way to the first rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from smdistributed.modelparallel.torch._session.object_codec import decode, encode
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
