# SPDX-License-Identifier: Apache-2.0
"""Lists, dicts, sets and deques that a call for another partition fills where its caller does not
look: attributes of modules, and what forwards and hooks find in their closures and globals.

Most are a module's own affair, such as a cache of masks, so the call goes on, with a warning.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._pipeline.object_states import is_same, state_of

_CONTAINERS = (list, dict, set, collections.deque)
_OF_TORCH = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")

#: A container, and what it is called.
Named = tuple[Any, str]


class KeptContainers:
    """Those that calls of ``modules`` may fill, by the modules' names, as they are now."""

    def __init__(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        found = {id(held): (held, what) for name, one in modules for held, what in _kept(name, one)}
        self._states = [(held, what, state_of(held)) for held, what in found.values()]

    def changed(self) -> list[str]:
        """What those are called that are other than they were.

        >>> module = nn.Identity()
        >>> module.seen = []
        >>> kept = KeptContainers([("mid", module)])
        >>> module.seen.append(1)
        >>> kept.changed()
        ['attribute seen of module mid']
        """
        return [what for held, what, before in self._states if not is_same(before, state_of(held))]


def _kept(name: str, module: nn.Module) -> Iterator[Named]:
    for attribute, value in vars(module).items():
        if attribute not in _OF_TORCH and isinstance(value, _CONTAINERS):
            yield value, f"attribute {attribute} of module {name}"
    yield from _seen_by(type(module).forward, f"the forward of module {name}")
    for hook in [hook for kind in _HOOKS for hook in vars(module)[kind].values()]:
        yield from _seen_by(hook, f"a hook of module {name}")


def _seen_by(function: Callable[..., Any], whose: str) -> Iterator[Named]:
    if isinstance(function, functools.partial):
        held = [*function.args, *function.keywords.values()]
        yield from (
            (one, f"an argument of {whose}") for one in held if isinstance(one, _CONTAINERS)
        )
        yield from _seen_by(function.func, whose)
    elif isinstance(function, types.MethodType):
        if not isinstance(function.__self__, (nn.Module, type)):
            for attribute, value in getattr(function.__self__, "__dict__", {}).items():
                if isinstance(value, _CONTAINERS):
                    yield value, f"{attribute} of {type(function.__self__).__name__}, {whose}"
        yield from _seen_by(function.__func__, whose)
    elif isinstance(function, types.FunctionType):
        code = function.__code__
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            value = _content(cell)
            if isinstance(value, _CONTAINERS):
                yield value, f"{variable} of {whose}"
        for variable in code.co_names:
            value = function.__globals__.get(variable)
            if isinstance(value, _CONTAINERS):
                yield value, f"{variable} of {whose}"


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None
