# SPDX-License-Identifier: Apache-2.0
"""Outcome of a check so far, in one line."""

from __future__ import annotations

from dataclasses import dataclass, field


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
