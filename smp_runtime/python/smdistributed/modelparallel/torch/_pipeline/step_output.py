# SPDX-License-Identifier: Apache-2.0
"""Results of a step: what its microbatches returned, tensors of which become one StepOutput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from smdistributed.modelparallel.torch._objects.containers import (
    is_sequence,
    like_mapping,
    like_sequence,
)
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPUnsupportedError


class StepOutput:
    """A tensor that a step returned: ``outputs`` lists it by microbatch, ``m`` tensors; the methods
    combine them. No communication.

    >>> losses = StepOutput([torch.tensor(1.0), torch.tensor(3.0)])
    >>> losses.reduce_mean().item(), losses.reduce_sum().item(), losses.concat().tolist()
    (2.0, 4.0, [1.0, 3.0])
    >>> StepOutput([torch.zeros(2, 3), torch.zeros(1, 3)]).concat().shape
    torch.Size([3, 3])
    """

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = list(outputs)

    def reduce_mean(self) -> torch.Tensor:
        """Mean over the microbatches, element by element: ``m`` times ``[*]`` -> ``[*]``, of one
        shape; of integers in the default type."""
        stacked = self.stack()
        if not (stacked.is_floating_point() or stacked.is_complex()):
            stacked = stacked.to(torch.get_default_dtype())
        return stacked.mean(dim=0)

    def reduce_sum(self) -> torch.Tensor:
        """Sum over the microbatches, element by element: ``m`` times ``[*]`` -> ``[*]``."""
        return self.stack().sum(dim=0)

    def concat(self) -> torch.Tensor:
        """Joined along the batch, dimension 0: ``[N_i, *]`` -> ``[sum of N_i, *]``; scalars become
        a vector ``[m]``."""
        if all(output.dim() == 0 for output in self.outputs):
            return self.stack()
        return torch.cat(self.outputs, dim=0)

    def stack(self) -> torch.Tensor:
        """Along a new dimension 0, the microbatches: ``m`` times ``[*]`` -> ``[m, *]``."""
        return torch.stack(self.outputs)

    def detach(self) -> StepOutput:
        """The same tensors without their gradients; Transformers' Trainer asks for it."""
        return StepOutput([output.detach() for output in self.outputs])

    def merge(self) -> NoReturn:
        """TensorFlow's; raises SMPUnsupportedError. Use ``concat``."""
        raise SMPUnsupportedError("StepOutput.merge belongs to TensorFlow; use concat()")

    def accumulate(self) -> NoReturn:
        """TensorFlow's; raises SMPUnsupportedError. Use ``reduce_sum``."""
        raise SMPUnsupportedError("StepOutput.accumulate belongs to TensorFlow; use reduce_sum()")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a StepOutput has no {name}: it holds the tensors of all microbatches. Combine them "
            f"first, as in output.reduce_mean().{name}"
        )

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                f"a StepOutput cannot be formatted by {spec!r}: it holds the tensors of all "
                "microbatches. Combine them first, as in output.reduce_mean()"
            )
        return repr(self)

    def __repr__(self) -> str:
        return f"StepOutput({self.outputs!r})"


def collect_outputs(returned: Sequence[Any]) -> Any:
    """The structure that every microbatch returned, once.

    Tensors become a StepOutput; other values a list over the microbatches; None stays None where
    all have it. Raises SMPStepError, naming the place, where the structures differ.

    >>> collect_outputs([{"loss": torch.tensor(1.0), "n": 3}, {"loss": torch.tensor(2.0), "n": 4}])
    {'loss': StepOutput([tensor(1.), tensor(2.)]), 'n': [3, 4]}
    """
    return _collect("the step's result", list(returned))


def _collect(where: str, values: list[Any]) -> Any:
    first = values[0]
    if all(value is None for value in values):
        return None
    if all(isinstance(value, torch.Tensor) for value in values):
        return StepOutput(values)
    if is_sequence(first):
        _check_alike(where, [_length(value) for value in values])
        columns = zip(*values, strict=True)
        return like_sequence(
            first, [_collect(f"{where}[{i}]", list(column)) for i, column in enumerate(columns)]
        )
    if isinstance(first, Mapping):
        _check_alike(where, [_keys(value) for value in values])
        return like_mapping(
            first,
            {key: _collect(f"{where}[{key!r}]", [value[key] for value in values]) for key in first},
        )
    return values


def _length(value: Any) -> Any:
    return (type(value).__name__, len(value)) if is_sequence(value) else type(value).__name__


def _keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return type(value).__name__, sorted(map(repr, value))
    return type(value).__name__


def _check_alike(where: str, shapes: list[Any]) -> None:
    for microbatch, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise SMPStepError(
                f"{where} differs between microbatches: {shapes[0]} in microbatch 0, {shape} in "
                f"microbatch {microbatch}; return the same structure from each of them"
            )
