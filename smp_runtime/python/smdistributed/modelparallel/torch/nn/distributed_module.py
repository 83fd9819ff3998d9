# SPDX-License-Identifier: Apache-2.0
"""Base of distributed modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from smdistributed.modelparallel.torch.exceptions import SMPValidationError

ModuleClass = TypeVar("ModuleClass", bound=type[nn.Module])


class DistributedModule(nn.Module):
    """Base of modules whose parameters are split over the ranks of a tensor-parallel group.

    Every rank of the group makes it and calls it alike. A constructor raises
    SMPTensorParallelError, before it makes a parameter, where sizes do not divide.
    """

    divided_sizes: ClassVar[tuple[str, ...]] = ()
    """Arguments of the constructor that tensor_parallel_degree divides."""

    enclosed = False
    """Set by the distributed module around this one, which enters and leaves the region."""

    def _enclose(self, *modules: DistributedModule) -> None:
        for module in modules:
            module.enclosed = True

    def _unpacked(self, inputs: Any, names: tuple[str, ...]) -> list[torch.Tensor | None]:
        """The members of the tuple that is the one argument; trailing ones may be left out."""
        if isinstance(inputs, torch.Tensor):
            inputs = (inputs,)
        if not isinstance(inputs, (tuple, list)) or not 1 <= len(inputs) <= len(names):
            given = f"{len(inputs)} values" if isinstance(inputs, (tuple, list)) else inputs
            raise SMPValidationError(
                f"{type(self).__name__} got {given!r}; it takes one tuple ({', '.join(names)})"
            )
        return [*inputs, *[None] * (len(names) - len(inputs))]

    def _hidden(self, hidden: torch.Tensor | None, size: int) -> torch.Tensor:
        """Checks hidden states, where they come from outside of a region."""
        if hidden is None or (
            not self.enclosed and (hidden.dim() != 3 or hidden.shape[-1] != size)
        ):
            shape = None if hidden is None else list(hidden.shape)
            raise SMPValidationError(
                f"{type(self).__name__} got hidden states of shape {shape}; expected [batch, "
                f"sequence, {size}]"
            )
        return hidden


def with_options_of(inner: type[nn.Module], *fixed: str) -> Callable[[ModuleClass], ModuleClass]:
    """Class decorator: where the constructor says ``**options``, it shows the keyword arguments of
    ``inner`` that it hands on, all but ``fixed``.

    >>> class Inner(nn.Module):
    ...     def __init__(self, *, size=1, number=0): ...
    >>> @with_options_of(Inner, "number")
    ... class Outer(nn.Module):
    ...     def __init__(self, name, **options): ...
    >>> inspect.signature(Outer)
    <Signature (name, *, size=1)>
    """

    def show(cls: ModuleClass) -> ModuleClass:
        own = list(inspect.signature(cls).parameters.values())[:-1]
        taken = {parameter.name for parameter in own} | set(fixed)
        options = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(inner).parameters.values()
            if parameter.name not in taken
        ]
        cls.__signature__ = inspect.Signature(own + options)  # type: ignore[attr-defined]
        return cls

    return show
