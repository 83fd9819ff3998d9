# SPDX-License-Identifier: Apache-2.0
"""The arguments of a step, cut into microbatches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from smdistributed.modelparallel.torch._pipeline.containers import (
    is_sequence,
    like_mapping,
    like_sequence,
)
from smdistributed.modelparallel.torch.exceptions import SMPValidationError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def split_inputs(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    microbatches: int,
    non_split_inputs: Collection[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
    device: torch.device | None = None,
) -> list[Arguments]:
    """The arguments of each microbatch of a call of ``function``.

    Tensors, also those in lists, tuples, dicts and sets, are cut into equal parts along axis 0 or
    the axis of their parameter; an object with ``smp_slice(num_mb, mb, axis)`` cuts itself;
    everything else goes to every microbatch as it is. With ``device`` tensors are moved there.

    Raises SMPValidationError, naming argument, shape and setting, where a tensor does not divide,
    and TypeError for arguments that do not fit the function.

    >>> def step(model, batch): ...
    >>> calls = split_inputs(step, ("model", {"x": torch.arange(4)}), {}, microbatches=2)
    >>> [args[1]["x"].tolist() for args, kwargs in calls]
    [[0, 1], [2, 3]]
    """
    axes = input_split_axes or {}
    names = _names_of(function, args, kwargs)
    split: list[Arguments] = []
    for microbatch in range(microbatches):
        cut = _Cut(microbatches, microbatch, device, frozenset(non_split_inputs), axes)
        positional = [cut.argument(*item) for item in zip(names, args, strict=True)]
        named = {name: cut.argument(name, value) for name, value in kwargs.items()}
        split.append((tuple(positional), named))
    return split


def batch_size(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    non_split_inputs: Collection[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
) -> int:
    """Length of the axis along which the first tensor among the arguments is split; 0 for none.

    >>> def step(model, batch): ...
    >>> batch_size(step, ("model", {"x": torch.zeros(8, 3)}), {})
    8
    """
    for _, value, axis in _split_arguments(
        function, args, kwargs, non_split_inputs, input_split_axes
    ):
        for leaf in tree_leaves(value):
            if isinstance(leaf, torch.Tensor) and leaf.dim() > axis:
                return leaf.shape[axis]
    return 0


def lengths(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    non_split_inputs: Collection[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Of the tensors that are arguments themselves and are split: along the axis where they are.

    >>> def step(batch, table): ...
    >>> lengths(step, (torch.zeros(8, 3), torch.zeros(4, 3)), {})
    {'batch': 8, 'table': 4}
    """
    return {
        name: value.shape[axis]
        for name, value, axis in _split_arguments(
            function, args, kwargs, non_split_inputs, input_split_axes
        )
        if isinstance(value, torch.Tensor) and value.dim() > axis
    }


def _split_arguments(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    non_split_inputs: Collection[str],
    input_split_axes: Mapping[str, int] | None,
) -> Iterator[tuple[str, Any, int]]:
    """The arguments that are split: parameter, value and axis."""
    axes = input_split_axes or {}
    arguments = [*zip(_names_of(function, args, kwargs), args, strict=True), *kwargs.items()]
    for name, value in arguments:
        if name not in non_split_inputs:
            yield name, value, axes.get(name, 0)


def _names_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """The parameter that each positional argument is for."""
    signature = inspect.signature(function)
    signature.bind(*args, **kwargs)  # raises TypeError as the call would
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [parameter.name] * (len(args) - len(names))
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[: len(args)]


class _Cut:
    """Takes one microbatch out of values."""

    def __init__(
        self,
        microbatches: int,
        microbatch: int,
        device: torch.device | None,
        whole: frozenset[str],
        axes: Mapping[str, int],
    ) -> None:
        self._count = microbatches
        self._index = microbatch
        self._device = device
        self._whole = whole
        self._axes = axes

    def argument(self, name: str, value: Any) -> Any:
        split = self._count > 1 and name not in self._whole
        return self._part(name, value, self._axes.get(name, 0) if split else None)

    def _part(self, where: str, value: Any, axis: int | None) -> Any:
        """``value`` cut along ``axis``, or whole without one."""
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
