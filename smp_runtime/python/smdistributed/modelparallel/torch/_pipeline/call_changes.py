# SPDX-License-Identifier: Apache-2.0
"""Changes that a call makes besides returning, in a form that travels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._objects.object_states import ObjectState
from smdistributed.modelparallel.torch._pipeline import context_values
from smdistributed.modelparallel.torch._pipeline.attribute_writes import Attribute, Writes


@dataclass
class Changes:
    """Values that differ from before, as they are now."""

    contexts: dict[context_values.Place, Any] = field(default_factory=dict)
    attributes: dict[tuple[int, str], Any] = field(default_factory=dict)
    """Values by the number of the module, and the name."""
    objects: dict[int, ObjectState] = field(default_factory=dict)
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    """Arguments that were changed in place."""

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __or__(self, later: Changes) -> Changes:
        """These changes, and then the ``later`` ones."""
        return Changes(*(mine | vars(later)[name] for name, mine in vars(self).items()))


class Modules:
    """The modules of the model, by the numbers under which ranks know them."""

    def __init__(self, modules: Sequence[nn.Module], names: Sequence[str]) -> None:
        self._modules, self.names = modules, names
        self._numbers = {module: number for number, module in enumerate(modules)}
        self._below: dict[nn.Module, set[nn.Module]] = {}
        self._parameters = {
            module: list(module._parameters.items()) for module in modules if module._parameters
        }

    def below(self, roots: Sequence[nn.Module]) -> set[nn.Module]:
        """All modules that a call of ``roots`` may run."""
        known = self._below
        for root in roots:
            if root not in known:
                known[root] = set(root.modules())
        return set().union(*(known[root] for root in roots))

    def named_below(self, roots: Sequence[nn.Module]) -> list[tuple[str, nn.Module]]:
        """With their names, all modules that a call of ``roots`` may run."""
        return [
            (self.names[self._numbers[module]], module)
            for module in self.below(roots)
            if module in self._numbers
        ]

    def exchanged_parameter(self, roots: Sequence[nn.Module]) -> str | None:
        """The name of one that is not the model's own now, as in ``torch.func.functional_call``."""
        for module in self.below(roots):
            for name, parameter in self._parameters.get(module, ()):
                if module._parameters.get(name) is not parameter:
                    return f"{self.names[self._numbers[module]]}.{name}"
        return None

    def values(self, written: Iterable[Attribute]) -> dict[tuple[int, str], Any]:
        """Present values of ``written``, of the model's own modules."""
        return {
            (self._numbers[one.module], one.name): one.value
            for one in written
            if one.module in self._numbers
        }

    def put(self, attributes: dict[tuple[int, str], Any], account: Writes | None = None) -> None:
        """Sets attributes, and notes that in ``account``."""
        for (number, name), value in attributes.items():
            module = self._modules[number]
            Attribute(module, name).put(value)
            if account is not None:
                account.note(module, name)

    def named(self, changes: Changes) -> Iterator[tuple[str, Any]]:
        """Changes of what its caller has handed to a call, in words, with what it is now."""
        for place, value in changes.contexts.items():
            yield f"context variable {'.'.join(place)}", value
        for state in changes.objects.values():
            yield "an argument", state
