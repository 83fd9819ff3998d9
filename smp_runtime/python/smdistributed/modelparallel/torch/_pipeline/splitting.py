# SPDX-License-Identifier: Apache-2.0
"""The arguments of a step, cut into microbatches."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from smdistributed.modelparallel.torch._objects.containers import (
    is_sequence,
    like_mapping,
    like_sequence,
)
from smdistributed.modelparallel.torch._ranks import log
from smdistributed.modelparallel.torch.exceptions import SMPValidationError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class InputSplit:
    """Cuts the arguments of ``function`` into microbatches.

    Tensors, also those in lists, tuples, dicts and sets, are cut into equal parts along axis 0 or
    that of their parameter in ``input_split_axes``; an object with ``smp_slice(num_mb, mb, axis)``
    cuts itself. Everything else goes to every microbatch as it is, and so do all arguments for
    ``non_split_inputs``.

    Raises SMPValidationError for names that are no parameters of the function. Methods raise
    TypeError for arguments that do not fit it.

    >>> def step(model, batch, table): ...
    >>> inputs = InputSplit(step, ["table"])
    >>> args = ("model", {"x": torch.arange(4)}, torch.zeros(7))
    >>> [args[1]["x"].tolist() for args, kwargs in inputs.split(args, {}, microbatches=2)]
    [[0, 1], [2, 3]]
    >>> inputs.batch_size(args, {})
    4
    """

    def __init__(
        self,
        function: Callable[..., Any],
        non_split_inputs: Collection[str] = (),
        input_split_axes: Mapping[str, int] | None = None,
    ) -> None:
        self._signature = inspect.signature(function)
        self._whole, self._axes = frozenset(non_split_inputs), input_split_axes or {}
        parameters = self._signature.parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        for name in [*non_split_inputs, *self._axes]:
            if name not in parameters:
                raise SMPValidationError(
                    f"smp.step of {function.__qualname__}: non_split_inputs or input_split_axes "
                    f"names {name!r}, which is none of its parameters {list(parameters)}"
                )

    def split(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        microbatches: int,
        device: torch.device | None = None,
    ) -> list[Arguments]:
        """The arguments of each microbatch, with tensors on ``device`` if there is one.

        Raises SMPValidationError, naming argument, shape and setting, where a tensor does not
        divide.
        """
        names = self._names_of(args, kwargs)
        split: list[Arguments] = []
        for microbatch in range(microbatches):
            cut = _Cut(microbatches, microbatch, device)
            positional = [cut.part(name, value, self._axis_of(name))
                          for name, value in zip(names, args, strict=True)]  # fmt: skip
            named = {name: cut.part(name, value, self._axis_of(name))
                     for name, value in kwargs.items()}  # fmt: skip
            split.append((tuple(positional), named))
        return split

    def batch_size(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
        """Length of the axis along which the first tensor among the arguments is split; 0 for
        none."""
        for _, value, axis in self._split_arguments(args, kwargs):
            for leaf in tree_leaves(value):
                if isinstance(leaf, torch.Tensor) and leaf.dim() > axis:
                    return leaf.shape[axis]
        return 0

    def lengths(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, int]:
        """Sizes, along the axis of the split, of arguments that are tensors themselves and are
        split.

        >>> def step(batch, table): ...
        >>> InputSplit(step).lengths((torch.zeros(8, 3), torch.zeros(4, 3)), {})
        {'batch': 8, 'table': 4}
        """
        return {
            name: value.shape[axis]
            for name, value, axis in self._split_arguments(args, kwargs)
            if isinstance(value, torch.Tensor) and value.dim() > axis
        }

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by parameter."""
        return self._signature.bind(*args, **kwargs).arguments

    def _axis_of(self, name: str) -> int | None:
        """None for a parameter whose arguments stay whole."""
        return None if name in self._whole else self._axes.get(name, 0)

    def _split_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any, int]]:
        """The arguments that are split: parameter, value and axis."""
        names = self._names_of(args, kwargs)
        for name, value in [*zip(names, args, strict=True), *kwargs.items()]:
            axis = self._axis_of(name)
            if axis is not None:
                yield name, value, axis

    def _names_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
        """The parameter that each positional argument is for."""
        self._signature.bind(*args, **kwargs)  # raises TypeError as the call would
        names: list[str] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                names += [parameter.name] * (len(args) - len(names))
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
        return names[: len(args)]


class _Cut:
    """Takes one microbatch out of values."""

    def __init__(self, microbatches: int, microbatch: int, device: torch.device | None) -> None:
        self._count, self._index, self._device = microbatches, microbatch, device

    def part(self, name: str, value: Any, axis: int | None) -> Any:
        """``value`` cut along ``axis``, or whole without one."""
        return self._part(name, value, axis if self._count > 1 else None)

    def _part(self, where: str, value: Any, axis: int | None) -> Any:
        if isinstance(value, torch.Tensor):
            return self._place(value if axis is None else self._slice(where, value, axis))
        if isinstance(value, (DataLoader, Iterator)):
            kind = "a DataLoader" if isinstance(value, DataLoader) else "an iterator"
            raise SMPValidationError(
                f"argument {where} is {kind}; pass one batch of it to the step, which cuts it into "
                "microbatches"
            )
        if axis is not None and callable(getattr(value, "smp_slice", None)):
            return value.smp_slice(self._count, self._index, axis)
        if is_sequence(value):
            items = [self._part(f"{where}[{i}]", item, axis) for i, item in enumerate(value)]
            return like_sequence(value, items)
        if isinstance(value, Mapping):
            return like_mapping(
                value,
                {key: self._part(f"{where}[{key!r}]", item, axis) for key, item in value.items()},
            )
        if isinstance(value, (set, frozenset)):
            return type(value)(self._part(f"an item of {where}", item, axis) for item in value)
        if axis is not None:
            _warn_of_whole_tensors(where, value)
        return value

    def _slice(self, where: str, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        shape = tuple(tensor.shape)
        if not shape:
            raise SMPValidationError(
                f"argument {where} has no dimension, so it cannot be split into microbatches="
                f"{self._count}; list its parameter in non_split_inputs"
            )
        if not -len(shape) <= axis < len(shape):
            raise SMPValidationError(
                f"argument {where} of shape {shape} has no axis {axis}; see input_split_axes"
            )
        length = shape[axis]
        if length % self._count != 0:
            raise SMPValidationError(
                f"argument {where} of shape {shape} has {length} entries along axis {axis}, which "
                f"microbatches={self._count} does not divide; change the batch size, drop the last "
                "batch, or list its parameter in non_split_inputs"
            )
        size = length // self._count
        return tensor.narrow(axis, self._index * size, size)

    def _place(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._device is None or tensor.device == self._device:
            return tensor
        # Towards the CPU a copy has to be waited for: the host reads without asking the GPU.
        return tensor.to(self._device, non_blocking=self._device.type == "cuda")


def _warn_of_whole_tensors(where: str, value: Any) -> None:
    """Warns of an object of a class that has tensors, which are not cut."""
    held = {} if isinstance(value, nn.Module) else getattr(value, "__dict__", {})
    names = [n for n, item in held.items() if isinstance(item, torch.Tensor) and item.dim() > 0]
    if names:
        _warn_once(
            f"argument {where} is an object of class {type(value).__qualname__}, and its tensors "
            f"({', '.join(names)}) are not cut into microbatches: each computes all of them. Pass "
            "tensors, also in a dict or tuple, or give the class a method smp_slice(num_mb, mb, "
            "axis) that returns the part of a microbatch; if it is no batch, list its parameter in "
            "non_split_inputs"
        )


@functools.cache
def _warn_once(text: str) -> None:
    log.warning(text)
