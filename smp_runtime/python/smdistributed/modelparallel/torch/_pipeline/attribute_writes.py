# SPDX-License-Identifier: Apache-2.0
"""Attributes that modules set in a step, such as ``self.aux_loss`` in a forward.

Each microbatch, and each call that a rank serves, has an account of its own. Microbatches run at
once, and a module is one object for all of them: behind a wait a microbatch finds its own values,
but for numbers, which may count what another microbatch does.
"""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._objects.object_states import IMMUTABLE
from smdistributed.modelparallel.torch._pipeline.context_values import keep_out
from smdistributed.modelparallel.torch._ranks import log
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import holding

_SET = nn.Module.__setattr__
_DELETE = nn.Module.__delattr__


class Gone:
    """Stands for an attribute that is not there."""


class Attribute:
    """One attribute of one module."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name = module, name

    @property
    def value(self) -> Any:
        """``Gone`` without one."""
        buffers = self.module._buffers
        return (buffers if self.name in buffers else vars(self.module)).get(self.name, Gone)

    def put(self, value: Any) -> None:
        buffers = self.module._buffers
        holder = buffers if self.name in buffers else vars(self.module)
        if value is Gone:
            holder.pop(self.name, None)
        else:
            holder[self.name] = value


class Writes:
    """Attributes that one microbatch or one call has set, in order."""

    def __init__(self) -> None:
        self.attributes: dict[tuple[nn.Module, str], Attribute] = {}

    def note(self, module: nn.Module, name: str) -> None:
        if name not in module._parameters and name not in module._modules:
            self.attributes.setdefault((module, name), Attribute(module, name))

    def below(self, modules: set[nn.Module]) -> list[Attribute]:
        """Attributes of ``modules``, among those that were set."""
        return [one for (module, _), one in self.attributes.items() if module in modules]

    def values(self) -> list[tuple[Attribute, Any]]:
        """Present values of the attributes, to be put back after a wait. Counters and the like go
        on counting, whoever counts."""
        present = [(one, one.value) for one in self.attributes.values()]
        return [(one, value) for one, value in present if type(value) not in IMMUTABLE]


_writes: contextvars.ContextVar[Writes | None] = contextvars.ContextVar("_writes", default=None)
keep_out(_writes)


def begin_account() -> Writes:
    """Begins the account of the microbatch or call to which the current context belongs."""
    account = Writes()
    _writes.set(account)
    return account


def current_account() -> Writes:
    """Account of the current context; empty where none was begun."""
    return _writes.get() or Writes()


def noted() -> contextlib.AbstractContextManager[None]:
    """Inside, attributes of modules that are set or deleted are in the account of whoever does."""
    return holding(nn.Module, __setattr__=_set, __delattr__=_delete)


def _set(self: nn.Module, name: str, value: Any) -> None:
    _SET(self, name, value)
    _note(self, name)


def _delete(self: nn.Module, name: str) -> None:
    _DELETE(self, name)
    _note(self, name)


def _note(module: nn.Module, name: str) -> None:
    account = _writes.get()
    if account is not None:
        account.note(module, name)


_NUMBERS = (bool, int, float, complex)
_told: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def warn_of_counters(model: Model, accounts: Iterable[Writes]) -> None:
    """``accounts`` are those of the microbatches of a step, on the first rank of a pipeline. Tells
    of each module once."""
    for module, attribute in _found(model, accounts):
        names = {one: name for name, one in model.get_module().named_modules()}
        log.warning(
            f"module {names.get(module) or '(root)'} sets its attribute {attribute} to a number in "
            "its forward and calls modules of other partitions, while several microbatches run: "
            "behind such a call it may find what another one has set. Set it between steps, or in "
            "a module that is whole on one partition"
        )


def _found(model: Model, accounts: Iterable[Writes]) -> Iterator[tuple[nn.Module, str]]:
    for account in accounts:
        for (module, name), attribute in account.attributes.items():
            if module in _told or type(attribute.value) not in _NUMBERS:
                continue
            _told.add(module)
            if len(model.ownership.owners_in(module)) > 1:
                yield module, name
