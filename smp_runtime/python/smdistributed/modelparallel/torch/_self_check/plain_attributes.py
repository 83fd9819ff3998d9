# SPDX-License-Identifier: Apache-2.0
"""Numbers, texts and switches that scripts keep in attributes of modules, such as a temperature or
a count of calls."""

from __future__ import annotations

from typing import Any

from torch import nn

_PLAIN = (bool, int, float, complex, str, type(None))
_OF_ALL = frozenset(vars(nn.Module()))

#: By the name of each part, its class and its attributes.
Attributes = dict[str, tuple[str, dict[str, Any]]]


def attributes_of(module: nn.Module) -> Attributes:
    """
    >>> attributes_of(nn.Sequential(nn.Dropout(0.5)))
    {'': ('Sequential', {}), '0': ('Dropout', {'p': 0.5, 'inplace': False})}
    """
    return {name: (type(part).__name__, _plain_of(part)) for name, part in module.named_modules()}


def _plain_of(part: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(part).items()
            if key not in _OF_ALL and type(value) in _PLAIN}  # fmt: skip


def set_attributes(module: nn.Module, attributes: Attributes) -> None:
    """Parts of another class than that in ``attributes``, which was replaced, stay as they are."""
    for name, part in module.named_modules():
        kind, values = attributes.get(name, ("", {}))
        if kind == type(part).__name__:
            vars(part).update(values)
