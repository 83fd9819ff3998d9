# SPDX-License-Identifier: Apache-2.0
"""Containers that a call to another partition fills where its caller does not look.

Such lists, dicts, sets and deques, as attributes of modules or in closures and globals, stay there.
Most are a module's own affair, such as a cache of masks, so the call goes on, with a warning.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._objects.object_states import is_same, state_of

_CONTAINERS = (list, dict, set, collections.deque)
_OF_TORCH = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")

#: Possible container, and its name.
Named = tuple[Any, str]


class KeptContainers:
    """Containers that calls of ``modules`` may fill, by the modules' names, as they are now."""

    def __init__(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        found = {
            id(held): (held, what)
            for name, one in modules
            for held, what in _seen_in(name, one)
            if isinstance(held, _CONTAINERS)
        }
        self._states = [(held, what, state_of(held)) for held, what in found.values()]

    def changed(self) -> list[str]:
        """Names of the containers that are not as they were.

        >>> module = nn.Identity()
        >>> module.seen = []
        >>> kept = KeptContainers([("mid", module)])
        >>> module.seen.append(1)
        >>> kept.changed()
        ['attribute seen of module mid']
        """
        return [what for held, what, before in self._states if not is_same(before, state_of(held))]


def _seen_in(name: str, module: nn.Module) -> Iterator[Named]:
    for attribute, value in vars(module).items():
        if attribute not in _OF_TORCH:
            yield value, f"attribute {attribute} of module {name}"
    yield from _seen_by(type(module).forward, f"the forward of module {name}")
    for hook in [hook for kind in _HOOKS for hook in vars(module)[kind].values()]:
        yield from _seen_by(hook, f"a hook of module {name}")


def _seen_by(function: Callable[..., Any], whose: str) -> Iterator[Named]:
    if isinstance(function, functools.partial):
        for value in [*function.args, *function.keywords.values()]:
            yield value, f"an argument of {whose}"
        yield from _seen_by(function.func, whose)
    elif isinstance(function, types.MethodType):
        owner = function.__self__
        if not isinstance(owner, (nn.Module, type)):
            for attribute, value in getattr(owner, "__dict__", {}).items():
                yield value, f"{attribute} of {type(owner).__name__}, {whose}"
        yield from _seen_by(function.__func__, whose)
    elif isinstance(function, types.FunctionType):
        code, cells = function.__code__, function.__closure__ or ()
        seen = {name: function.__globals__.get(name) for name in code.co_names}
        seen |= {name: _content(cell) for name, cell in zip(code.co_freevars, cells, strict=True)}
        for name, value in seen.items():
            yield value, f"{name} of {whose}"


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None
