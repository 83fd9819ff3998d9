# SPDX-License-Identifier: Apache-2.0
"""States of random numbers by name, of which each tensor rank has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from smdistributed.modelparallel.torch.exceptions import SMPValidationError

_OWN = "model-parallel-rng"
States = dict[str, torch.Tensor]  # of generators, by "cpu" and "cuda"


class RngStateTracker:
    """States of torch's default generators, aside of those that the script uses.

    >>> tracker = RngStateTracker()
    >>> tracker.add("other", 5)
    >>> with tracker.fork("other"):
    ...     first = torch.rand(1)
    >>> torch.manual_seed(5) and torch.equal(torch.rand(1), first)
    True
    """

    def __init__(self) -> None:
        self._states: dict[str, States] = {}

    def reset(self) -> None:
        """Forgets all states."""
        self._states.clear()

    def add(self, name: str, seed: int) -> None:
        """A state that begins with ``seed``. Raises SMPValidationError for a known name."""
        if name in self._states:
            raise SMPValidationError(f"there is a state of random numbers {name} already")
        before = _now()
        torch.manual_seed(seed)
        self._states[name] = _now()
        _set(before)

    def get_states(self) -> dict[str, States]:
        """All of them, to be kept."""
        return dict(self._states)

    def set_states(self, states: dict[str, States]) -> None:
        """Goes back to what ``get_states`` gave."""
        self._states = dict(states)

    @contextmanager
    def fork(self, name: str = _OWN) -> Iterator[None]:
        """Inside, torch draws from the state ``name``, which goes on; afterwards from where it
        was. Raises SMPValidationError for an unknown name."""
        if name not in self._states:
            raise SMPValidationError(
                f"there is no state of random numbers {name}; known: "
                f"{', '.join(self._states) or 'none'}"
            )
        before = _now()
        _set(self._states[name])
        try:
            yield
        finally:
            self._states[name] = _now()
            _set(before)


def tracker_for(seed: int, rank: int) -> RngStateTracker:
    """One with a state that no other tensor rank has."""
    tracker = RngStateTracker()
    tracker.add(_OWN, seed + rank)
    return tracker


def _now() -> States:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set(states: States) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
