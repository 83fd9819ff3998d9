# SPDX-License-Identifier: Apache-2.0
"""Context variables that code between a step and a call has set, under names that every rank knows.

A :class:`~contextvars.ContextVar` cannot travel. All ranks run one program, so the global, or the
attribute of a global, that holds it names it on each of them.
"""

from __future__ import annotations

import contextvars
import sys
import types
from collections.abc import Iterator
from typing import Any

from smdistributed.modelparallel.torch.exceptions import SMPStepError

#: The module, the name in it and, if the variable is an attribute of what is there, its name.
Place = tuple[str, ...]

_MISSING = object()
_own: set[contextvars.ContextVar[Any]] = set()
_places: dict[contextvars.ContextVar[Any], Place] = {}


def keep_out(variable: contextvars.ContextVar[Any]) -> None:
    """The variable is of the rank; it goes nowhere."""
    _own.add(variable)


def changed_since(context: contextvars.Context) -> list[contextvars.ContextVar[Any]]:
    """The variables that have other values here than in ``context``."""
    return [
        variable
        for variable, value in contextvars.copy_context().items()
        if context.get(variable, _MISSING) is not value and variable not in _own
    ]


def place_of(variable: contextvars.ContextVar[Any]) -> Place:
    """Raises SMPStepError for a variable that is nowhere to be found by name."""
    if variable not in _places:
        place = next(_search(variable), None)
        if place is None:
            raise SMPStepError(
                f"context variable {variable.name} has been set since the step began, and a module "
                "of another partition is called, which cannot see it: the variable is no global of "
                "a module, nor an attribute of one. Make it one, or set it before the step, on all "
                "ranks"
            )
        _places[variable] = place
    return _places[variable]


def variable_at(place: Place) -> contextvars.ContextVar[Any]:
    module, *names = place
    found: Any = sys.modules[module]
    for name in names:
        found = getattr(found, name)
    assert isinstance(found, contextvars.ContextVar)
    return found


def _search(variable: contextvars.ContextVar[Any]) -> Iterator[Place]:
    for module_name, module in list(sys.modules.items()):
        for name, value in _attributes(module):
            if value is variable:
                yield module_name, name
            elif not issubclass(type(value), types.ModuleType):
                for inner, item in _attributes(value):
                    if item is variable:
                        yield module_name, name, inner


def _attributes(obj: Any) -> list[tuple[str, Any]]:
    """As they are, without what a class of the object's own would do to answer."""
    try:
        return list(object.__getattribute__(obj, "__dict__").items())
    except (AttributeError, TypeError):
        return []
