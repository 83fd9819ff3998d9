# SPDX-License-Identifier: Apache-2.0
"""Makes what a step returns from what its microbatches returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from smdistributed.modelparallel.torch._objects.containers import (
    is_sequence,
    like_mapping,
    like_sequence,
)
from smdistributed.modelparallel.torch._pipeline.step_output import StepOutput
from smdistributed.modelparallel.torch.exceptions import SMPStepError


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
