# SPDX-License-Identifier: Apache-2.0
"""First values of the parameters of distributed modules.

Each is a slice of one whole tensor, which all tensor ranks draw alike: values depend neither on the
number of ranks nor on how a script seeds its processes, only on ``tensor_parallel_seed`` and on
the order in which parameters are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from smdistributed.modelparallel.torch._slices.parameter_slices import (
    set_spread,
    shape_of_slice,
    slice_of,
)
from smdistributed.modelparallel.torch.state_mod import state

Fill = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
Draw = Callable[[torch.Tensor], None]
"""Draws the values of a parameter into it, or into one like it."""

_STRIDE = 1_000_003  # a prime: seeds of neighbouring jobs share no stream


_later: dict[nn.Parameter, Draw] | None = None


@contextmanager
def drawn_later() -> Iterator[dict[nn.Parameter, Draw]]:
    """Inside, parameters are made without values. Gives what draws that of each, for those which
    get no other; it is the same then as it would have been."""
    global _later  # noqa: PLW0603 - modules are made in many frames below
    before, _later = _later, {}
    try:
        yield _later
    finally:
        _later = before


def drawn(*shape: int, axis: int | None, fill: Fill, scaled_batch: bool = True) -> nn.Parameter:
    """This rank's slice of a parameter of the whole ``shape``."""
    state.drawn_parameters += 1
    seed = state.cfg.tensor_parallel_seed * _STRIDE + state.drawn_parameters
    parameter = nn.Parameter(torch.empty(shape_of_slice(shape, axis)))

    def draw(into: torch.Tensor) -> None:
        generator = torch.Generator()
        generator.manual_seed(seed)
        with torch.no_grad():
            whole = fill(torch.empty(*shape, dtype=into.dtype, device="cpu"), generator)
            into.copy_(slice_of(whole, axis))

    if _later is None:
        draw(parameter)
    else:
        _later[parameter] = draw
    set_spread(parameter, axis, scaled_batch)
    return parameter


def constant(
    size: int, value: float, axis: int | None = None, scaled_batch: bool = True
) -> nn.Parameter:
    """The same for a vector that begins with one value everywhere."""
    whole = torch.empty(size).fill_(value)
    parameter = nn.Parameter(slice_of(whole, axis).clone())
    set_spread(parameter, axis, scaled_batch)
    return parameter


def normal(deviation: float) -> Fill:
    return lambda tensor, generator: tensor.normal_(0, deviation, generator=generator)


def normal_but_for(row: int | None, deviation: float) -> Fill:
    """With zeros in one row."""

    def fill(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        tensor.normal_(0, deviation, generator=generator)
        if row is not None:
            tensor[row].zero_()
        return tensor

    return fill


def uniform(bound: float) -> Fill:
    return lambda tensor, generator: tensor.uniform_(-bound, bound, generator=generator)


def linear_weight(inputs: int, deviation: float | None) -> Fill:
    """As torch's ``nn.Linear``, or normal with a standard deviation."""
    return uniform(1 / math.sqrt(inputs)) if deviation is None else normal(deviation)


def linear_bias(inputs: int, deviation: float | None) -> Fill:
    """As torch's ``nn.Linear``, or zeros where weights are normal."""
    if deviation is None:
        return uniform(1 / math.sqrt(inputs))
    return lambda tensor, _generator: tensor.zero_()
