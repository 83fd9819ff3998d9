# SPDX-License-Identifier: Apache-2.0
"""Findings of a check: differences between a job and plain PyTorch, kinds of faults that leave
such, and the outcome in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from smdistributed.modelparallel.torch._self_check.tolerances import difference

_SHOWN = 3
_NARROW = 2.0**-7  # for values rounded to 16 bits once or twice on the way
_UNRELATED = 2.0  # a difference as large as that of two gradients of one size
_STRAIGHT = 1e-2  # a residual beside a factor: nothing but that factor
_SHARES = 8  # at most, of a parameter that ranks step with learning rates of their own


@dataclass(frozen=True)
class Finding:
    """The first thing that differs: ``what`` with its name, by how much, and the likely cause."""

    what: str
    apart: float
    allowed: float
    cause: str

    def text(self, step: int) -> str:
        """One sentence for the log and the error."""
        return (
            f"SMP_SELF_CHECK: in checked step {step} {self.what} differs from plain PyTorch by "
            f"{self.apart:.2g} of its size, and {self.allowed:.2g} is rounding. Likely "
            f"{self.cause}"
        )


def names_of(names: list[str]) -> str:
    """
    >>> names_of(["a", "b", "c", "d"])
    'a (and 3 more: b, c, d)'
    >>> names_of(["head.weight"])
    'head.weight'
    """
    if len(names) == 1:
        return names[0]
    rest = ", ".join(names[1 : 1 + _SHOWN]) + (", ..." if len(names) > 1 + _SHOWN else "")
    return f"{names[0]} (and {len(names) - 1} more: {rest})"


@dataclass(frozen=True)
class Divisors:
    """Divisors of the job's means, which a wrong factor would tell of."""

    replicas: int
    microbatches: int
    loss_scale: float = 1.0

    def named(self, factor: float) -> str:
        """Names the division that a gradient ``factor`` times too large lacks, or has had twice;
        empty if none is known."""
        known = {
            "the mean over the replicas": self.replicas,
            "the mean over the microbatches": self.microbatches,
            "the mean over replicas and microbatches": self.replicas * self.microbatches,
            "the loss scale": self.loss_scale,
        }
        for name, number in known.items():
            if number == 1:
                continue
            if abs(factor / number - 1) < _STRAIGHT:
                return f"{name} was not taken, or a sum in its place"
            if abs(factor * number - 1) < _STRAIGHT:
                return f"{name} was taken twice"
        return ""


def cause_of_gradient(
    found: torch.Tensor,
    plain: Mapping[str, torch.Tensor],
    name: str,
    own: torch.Tensor | None,
    divisors: Divisors,
    allowed: float,
) -> str:
    """Likely cause of a gradient that differs from ``plain[name]``; ``own`` is the gradient that
    the first replica alone has."""
    if not bool(found.any()):
        return "a lost gradient: nothing of it came to the parameter, such as by a dropped hook"
    if own is not None and difference(found, own, 0.0) <= allowed:
        return "a lost reduction: it is the gradient of rank 0's own batch, without the replicas'"
    for other, gradient in plain.items():
        same_shape = other != name and gradient.shape == found.shape
        if same_shape and difference(found, gradient, 0.0) <= allowed:
            return f"swapped parameters: it is the gradient of {other}"
    return _cause_of_numbers(found.double(), plain[name].double(), divisors, allowed)


def _cause_of_numbers(
    found: torch.Tensor, expected: torch.Tensor, divisors: Divisors, allowed: float
) -> str:
    squares = float((expected * expected).sum())
    factor = float((found * expected).sum()) / squares if squares else float("inf")
    apart = difference(found, expected, 0.0)
    straight = difference(found, factor * expected, 0.0) < max(allowed, _STRAIGHT / 10)
    if apart <= _NARROW:
        return "rounding: sums that are made in fewer bits than in plain PyTorch"
    if straight and abs(factor - 1) > _STRAIGHT:
        meant = divisors.named(factor)
        return f"a wrong divisor: it is {factor:.4g} times as large" + (meant and f"; {meant}")
    if _same_numbers(found, expected, allowed):
        return "slices or rows in another order: it has the same numbers at other places"
    if apart < _UNRELATED and factor > 0:
        return (
            "a part of the batch that is missing or counted twice: a microbatch, a replica, or a "
            "module that ran otherwise"
        )
    return "another computation: it has nothing in common with the plain gradient"


def cause_of_update(before: torch.Tensor, found: torch.Tensor, plain: torch.Tensor) -> str:
    """Likely cause of an update of a weight from ``before`` to ``found``, not to ``plain``."""
    way, expected = found.double() - before.double(), plain.double() - before.double()
    if not bool(way.any()):
        return "a parameter that the optimizer does not change: it is as before the update"
    squares = float((expected * expected).sum())
    if not squares:
        return "an optimizer that changes a parameter without a gradient"
    rates = _rates(way, expected)
    if len(rates) == 1:
        return (
            f"another learning rate: the update is {rates[0]:.4g} times as large as by its group's"
        )
    if rates:
        times = ", ".join(f"{rate:.4g}" for rate in rates[:-1]) + f" and {rates[-1]:.4g}"
        return (
            f"other learning rates on some ranks: parts of the update are {times} times as large "
            "as by its group's on rank 0"
        )
    if _same_numbers(found.double(), plain.double(), _STRAIGHT * difference(found, plain, 0.0)):
        return "slices or rows in another order: it has the same numbers at other places"
    return "other state of the optimizer, or an update that needs more than its part of the weight"


def _rates(way: torch.Tensor, expected: torch.Tensor) -> list[float]:
    """By what parts of ``expected`` are multiplied in ``way``; empty if that is not all there is.

    >>> _rates(torch.tensor([2.0, 4.0, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
    [1.0, 2.0]
    >>> _rates(torch.tensor([3.0, 1.0, 2.0, 6.0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    []
    """
    moved = expected.abs() > _STRAIGHT * expected.abs().max()
    rates: list[float] = []
    near = torch.zeros_like(moved)
    while not bool(near[moved].all()):
        if len(rates) == min(_SHARES, 1 + int(moved.sum()) // 3):
            return []
        first = int((moved & ~near).reshape(-1).nonzero()[0])
        rates.append(float(way.reshape(-1)[first] / expected.reshape(-1)[first]))
        near |= (way - rates[-1] * expected).abs() <= _STRAIGHT * expected.abs()
    return sorted(rates)


def _same_numbers(one: torch.Tensor, other: torch.Tensor, allowed: float) -> bool:
    if one.shape != other.shape:
        return False
    ordered = one.reshape(-1).sort().values, other.reshape(-1).sort().values
    return difference(*ordered, 0.0) <= allowed


@dataclass
class Tally:
    """Comparisons of one kind of numbers, and the difference closest to what is allowed."""

    times: int = 0
    apart: float = 0.0
    allowed: float = 0.0

    def add(self, apart: float, allowed: float) -> None:
        self.times += 1
        if not self.allowed or apart * self.allowed > self.apart * allowed:
            self.apart, self.allowed = apart, allowed

    def text(self, what: str) -> str:
        return f"{what} to {self.apart:.2g} (rounding: {self.allowed:.2g})"


@dataclass
class Outcome:
    """Outcome of all checked steps."""

    steps: int = 0
    results: Tally = field(default_factory=Tally)
    gradients: Tally = field(default_factory=Tally)
    updates: Tally = field(default_factory=Tally)
    parameters: int = 0
    left_out: dict[str, None] = field(default_factory=dict)
    """Comparisons that were left out and why, each once."""
    notes: dict[str, None] = field(default_factory=dict)

    def leave_out(self, what: str) -> None:
        self.left_out[what] = None

    def line(self) -> str:
        """
        >>> outcome = Outcome(steps=2, parameters=4)
        >>> outcome.results.add(1e-7, 1e-4)
        >>> outcome.leave_out("weights after an update: Lion draws random numbers")
        >>> print(outcome.line())
        2 steps agree with plain PyTorch in one process: results to 1e-07 (rounding: 0.0001); \
not compared: weights after an update: Lion draws random numbers
        """
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        parts = []
        if self.results.times:
            parts.append(self.results.text("results"))
        if self.gradients.times:
            parts.append(self.gradients.text(f"gradients of {self.parameters} parameters"))
        if self.updates.times:
            updates = f"update{'s' * (self.updates.times != 1)}"
            parts.append(self.updates.text(f"weights after {self.updates.times} {updates}"))
        agree = f"agree{'s' * (self.steps == 1)} with plain PyTorch in one process: "
        line = f"{steps} {agree}{', '.join(parts)}" if parts else f"{steps}: nothing was compared"
        if self.left_out:
            line += f"; not compared: {'; '.join(self.left_out)}"
        if self.notes:
            line += f"; {'; '.join(self.notes)}"
        return line
