# SPDX-License-Identifier: Apache-2.0
"""Finds the loss among the results of a step, for the live line and the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from smdistributed.modelparallel.torch._objects.containers import is_sequence


def loss_of(outputs: Sequence[Any]) -> torch.Tensor | None:
    """Mean over the microbatches of what each returned as ``loss``, or of its first number with a
    fraction: a scalar of 64 bits, where the loss is. None where a microbatch has none.

    >>> loss_of([(torch.zeros(2, 3), torch.tensor(1.0)), (torch.zeros(2, 3), torch.tensor(3.0))])
    tensor(2., dtype=torch.float64)
    >>> loss_of([{"count": 3, "loss": 0.5}])
    tensor(0.5000, dtype=torch.float64)
    >>> loss_of([torch.zeros(2, 3)]) is None
    True
    """
    numbers: list[torch.Tensor] = []
    for output in outputs:
        number = _first_number(output)
        if number is None:
            return None
        numbers.append(number)
    with torch.no_grad():
        if len({(number.shape, number.dtype, number.device) for number in numbers}) > 1:
            place = numbers[0].device
            numbers = [number.reshape(()).to(place, torch.float64) for number in numbers]
        return torch.stack(numbers).mean(dtype=torch.float64)


def _first_number(output: Any) -> torch.Tensor | None:
    if isinstance(output, torch.Tensor):
        plain = output.numel() == 1 and output.is_floating_point() and not output.is_sparse
        return output if plain else None
    if isinstance(output, float):
        return torch.tensor(output)
    items: Sequence[Any] = ()
    if isinstance(output, Mapping):
        items = [output["loss"]] if "loss" in output else list(output.values())
    elif is_sequence(output):
        items = output
    return next((n for n in map(_first_number, items) if n is not None), None)
