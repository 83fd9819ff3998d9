# SPDX-License-Identifier: Apache-2.0
"""Registry of distributed modules by the plain ones they replace, and of translated arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from smdistributed.modelparallel.torch._annotations.constructed_values import note_constructed
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.ports import Translation

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
ArgumentHook = Callable[..., Any]
ModuleClass = TypeVar("ModuleClass", bound=type[nn.Module])

_RECORD = "_smp_made_with"
_RECORDS = "_smp_records_arguments"


@dataclass(frozen=True)
class Registration:
    """Recipe that makes a module of one class one of ``dist_module``.

    The hooks are the script's, see ``tp_register``. ``arguments_of`` reads the constructor's
    arguments off an instance; without it they were noted when the instance was made.
    ``from_plain`` and ``to_plain`` translate whole state dicts of the module; None: the names and
    shapes are the same. ``same_calls``: so is what it takes and returns.
    """

    dist_module: type[nn.Module]
    init_hook: ArgumentHook | None = None
    forward_hook: ArgumentHook | None = None
    return_hook: Callable[[Any], Any] | None = None
    arguments_of: Callable[[nn.Module], Arguments] | None = None
    from_plain: Translation | None = None
    to_plain: Translation | None = None
    same_calls: bool = False


_registrations: dict[type[nn.Module], Registration] = {}


def tp_register(
    dist_module: type[nn.Module],
    init_hook: ArgumentHook | None = None,
    forward_hook: ArgumentHook | None = None,
    return_hook: Callable[[Any], Any] | None = None,
) -> Callable[[ModuleClass], ModuleClass]:
    """Class decorator: annotated modules of the class are replaced by ``dist_module``.

    Args:
        dist_module: the distributed class.
        init_hook: takes the arguments of the decorated class's ``__init__`` without ``self`` and
            returns ``(args, kwargs)`` for ``dist_module``, or None to leave the module as it is.
        forward_hook: the same for ``forward``.
        return_hook: takes what ``dist_module`` returns and returns what the caller is to get.

    >>> class Split(nn.Identity): ...
    >>> @tp_register(Split)
    ... class Plain(nn.Identity): ...
    >>> registration_of(Plain()).dist_module is Split
    True
    """

    def register(module_cls: ModuleClass) -> ModuleClass:
        tp_register_with_module(module_cls, dist_module, init_hook, forward_hook, return_hook)
        return module_cls

    return register


def tp_register_with_module(
    module_cls: type[nn.Module],
    dist_module: type[nn.Module],
    init_hook: ArgumentHook | None = None,
    forward_hook: ArgumentHook | None = None,
    return_hook: Callable[[Any], Any] | None = None,
) -> None:
    """``tp_register`` for a class that is not the script's own. The last registration counts.

    Subclasses are not concerned: their ``forward`` may be another. Instances made before cannot
    be replaced, for the library has not seen their arguments.

    Raises:
        SMPValidationError: a class that is no module, or a hook that cannot be called.
    """
    for what, given in (("module_cls", module_cls), ("dist_module", dist_module)):
        if not (isinstance(given, type) and issubclass(given, nn.Module)):
            raise SMPValidationError(
                f"smp.tp_register_with_module got {given!r} for {what}; expected a subclass of "
                "torch.nn.Module"
            )
    hooks = {"init_hook": init_hook, "forward_hook": forward_hook, "return_hook": return_hook}
    for what, hook in hooks.items():
        if hook is not None and not callable(hook):
            raise SMPValidationError(
                f"smp.tp_register of {module_cls.__name__} got {hook!r} for {what}; expected a "
                "function"
            )
    _record_arguments(module_cls)
    _registrations[module_cls] = Registration(dist_module, init_hook, forward_hook, return_hook)


def registration_of(module: nn.Module) -> Registration | None:
    """The script's registration for the class of ``module``, exactly that class."""
    return _registrations.get(type(module))


def recorded_arguments(module: nn.Module) -> Arguments | None:
    """Arguments that ``module`` was made with, if its class was registered by then."""
    return module.__dict__.get(_RECORD)


def _record_arguments(module_cls: type[nn.Module]) -> None:
    """From now on instances of exactly this class remember the arguments of ``__init__``."""
    if _RECORDS in module_cls.__dict__:
        return
    plain_init = module_cls.__init__

    @functools.wraps(plain_init)
    def recording_init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        plain_init(self, *args, **kwargs)
        if type(self) is module_cls:
            self.__dict__[_RECORD] = (args, dict(kwargs))
            for module in self.modules():
                note_constructed(module)

    module_cls.__init__ = recording_init  # type: ignore[method-assign]
    setattr(module_cls, _RECORDS, True)
