# SPDX-License-Identifier: Apache-2.0
"""Rebuilds containers around other contents: named tuples, ``BatchEncoding``, ``ModelOutput``."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch


def is_sequence(value: Any) -> bool:
    """True for a list, a tuple, or an instance of a subclass."""
    return isinstance(value, (list, tuple))


def like_sequence(original: Any, items: Iterable[Any]) -> Any:
    """A list, tuple or named tuple of the type of ``original``.

    >>> like_sequence((1, 2), [3, 4])
    (3, 4)
    """
    if hasattr(original, "_fields"):
        return type(original)(*items)
    return type(original)(items)


def like_mapping(original: Mapping[Any, Any], items: Mapping[Any, Any]) -> Any:
    """A mapping of the type of ``original``, with its other attributes and the same keys.

    >>> like_mapping({"a": 1}, {"a": 2})
    {'a': 2}
    """
    try:
        rebuilt = copy.copy(original)
        for key, value in items.items():
            rebuilt[key] = value  # type: ignore[index]
    except TypeError:  # it cannot be written to
        return dict(items)
    return rebuilt


def detached(tree: Any) -> Any:
    """The same structure with tensors that have no graph.

    >>> detached({"loss": torch.ones(1, requires_grad=True)})["loss"].requires_grad
    False
    """
    if isinstance(tree, torch.Tensor):
        return tree.detach()
    if is_sequence(tree):
        return like_sequence(tree, [detached(item) for item in tree])
    if isinstance(tree, Mapping):
        return like_mapping(tree, {key: detached(value) for key, value in tree.items()})
    return tree
