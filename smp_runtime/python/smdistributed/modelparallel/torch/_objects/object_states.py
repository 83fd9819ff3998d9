# SPDX-License-Identifier: Apache-2.0
"""State of an object, without that of the things it holds: to see that a call changed the object,
and to change its counterpart on another rank likewise."""

from __future__ import annotations

import collections
import copyreg
import enum
import types
import weakref
from dataclasses import dataclass
from typing import Any

import torch

#: Types whose objects nobody can change. Tensors are looked at by their versions.
IMMUTABLE = frozenset(
    {
        *(bool, int, float, complex, str, bytes, tuple, frozenset, range, slice, type),
        *(type(None), type(...), type(NotImplemented)),
        *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type(torch.add)),
        *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format),
        weakref.ReferenceType,
    }
)
_SEQUENCES = (list, set, collections.deque)


@dataclass(frozen=True)
class ObjectState:
    """Copies of the containers that an object is, and the very things in them."""

    items: list[Any] | None = None
    """Items of a list, a set or a deque."""
    entries: dict[Any, Any] | None = None
    """Entries of a dict."""
    attributes: Any = None
    """As pickle takes them: mostly a dict, or a pair of one and the values of slots."""
    made_with: tuple[Any, ...] = ()
    """Values that cannot change once the object is made."""


def state_of(obj: Any) -> ObjectState | None:
    """None for an object that cannot change, or of which pickle cannot tell what it holds, such as
    a lock. Containers that are built in, and their subclasses, are looked at as they are, other
    objects as pickle does.

    >>> state_of([1, 2]).items, state_of((1, 2))
    ([1, 2], None)
    """
    if isinstance(obj, (tuple, frozenset, torch.Tensor, torch.nn.Module, type, enum.Enum)):
        return None
    attributes = _copied(getattr(obj, "__dict__", None))
    if isinstance(obj, _SEQUENCES):
        return ObjectState(items=list(obj), attributes=attributes)
    if isinstance(obj, dict):
        return ObjectState(entries=dict(dict.items(obj)), attributes=attributes)
    reduce = copyreg.dispatch_table.get(type(obj))
    try:
        reduced: Any = obj.__reduce_ex__(4) if reduce is None else reduce(obj)
    except Exception:
        return None
    if not isinstance(reduced, tuple):
        return None
    _, made_with, attributes, items, entries = (*reduced, None, None, None)[:5]
    return ObjectState(
        items=None if items is None else list(items),
        entries=None if entries is None else dict(entries),
        attributes=_copied(attributes),
        made_with=made_with,
    )


def _copied(attributes: Any) -> Any:
    if isinstance(attributes, tuple):
        return tuple(map(_copied, attributes))
    return dict(attributes) if isinstance(attributes, dict) else attributes


def is_same(one: Any, other: Any) -> bool:
    """True if two states, or what they hold, are the same things in the same places.

    >>> is_same(state_of([1, "a"]), state_of([1, "a"])), is_same(state_of([[]]), state_of([[]]))
    (True, True)
    >>> is_same(state_of([1]), state_of([1, 2])), is_same(torch.ones(2), torch.ones(2))
    (False, False)
    """
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is ObjectState:
        return is_same(vars(one), vars(other))
    if kind in (list, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if kind is dict:
        return is_same(list(one), list(other)) and all(map(is_same, one.values(), other.values()))
    return kind in IMMUTABLE and bool(one == other)


def become(obj: Any, state: ObjectState) -> None:
    """Gives ``obj`` the state of a counterpart that was made with the same things."""
    if state.items is not None:
        _refill(obj, state.items)
    if state.entries is not None:
        _refill_entries(obj, state.entries)
    if isinstance(obj, (dict, *_SEQUENCES)) or not hasattr(obj, "__setstate__"):
        _set_attributes(obj, state.attributes)
    elif state.attributes is not None:
        obj.__setstate__(state.attributes)


def _refill(obj: Any, items: list[Any]) -> None:
    if isinstance(obj, list):
        obj[:] = items
        return
    obj.clear()
    if isinstance(obj, set):
        obj.update(items)
    else:
        obj.extend(items)


def _refill_entries(obj: Any, entries: dict[Any, Any]) -> None:
    for key in [key for key in obj if key not in entries]:
        del obj[key]
    if list(obj) != list(entries)[: len(obj)]:
        obj.clear()  # to be filled in their order
    for key, value in entries.items():
        obj[key] = value


def _set_attributes(obj: Any, attributes: Any) -> None:
    own, slots = attributes if isinstance(attributes, tuple) else (attributes, None)
    if hasattr(obj, "__dict__"):
        vars(obj).clear()
        vars(obj).update(own or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
