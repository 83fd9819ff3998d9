# SPDX-License-Identifier: Apache-2.0
"""Watches results of modules in a step, by name, and the random numbers drawn meanwhile; these can
be drawn once more."""

from __future__ import annotations

import contextlib
import math
import random
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

Sizes = dict[str, list[float]]
"""The 2-norms of what a module returned, by its name, call after call."""


STEP_FUNCTION = "(the step's function)"


class ModuleWatch:
    """Hooks on modules, from ``open`` to ``close``.

    ``seeded`` modules draw from a stream of their own, which their name, the replica and the
    microbatch begin: then it does not matter on which rank they are, and when they run. Others draw
    from the generator as always. ``place`` says which replica and microbatch is computing. With
    ``noticing`` it is found out who draws, which is for modules that run one behind the other.
    """

    def __init__(
        self,
        place: Callable[[], tuple[int, int]],
        step: int,
        seeded: Collection[str],
        *,
        noticing: bool,
    ) -> None:
        self.sizes: Sizes = {}
        self.drew: list[str] = []
        """Modules that drew random numbers themselves; the first one first."""
        self._place, self._step, self._noticing = place, step, noticing
        self._seeded = frozenset(seeded)
        self._inside: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        self._handles: list[RemovableHandle] = []

    def open(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        for name, module in modules:
            if self._noticing or name in self._seeded:
                self._handles.append(module.register_forward_pre_hook(self._enter(name)))
            self._handles.append(module.register_forward_hook(self._leave(name), always_call=True))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def begin_run(self) -> None:
        """A microbatch begins, on this thread alone."""
        now = torch.get_rng_state()
        self._inside = [(STEP_FUNCTION, now, now)]

    def end_run(self) -> None:
        self._notice()
        self._inside.clear()

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(_module: nn.Module, _args: Any) -> None:
            self._notice()
            before = torch.get_rng_state()
            if name in self._seeded:
                text = f"{self._step}/{name}/{self._place()}"
                torch.default_generator.manual_seed(zlib.crc32(text.encode()))
            self._inside.append((name, before, torch.get_rng_state()))

        return enter

    def _notice(self) -> None:
        """Notes whether the innermost module has drawn since we last looked."""
        if not self._noticing or not self._inside:
            return
        name, before, last = self._inside[-1]
        now = torch.get_rng_state()
        if not torch.equal(now, last):
            if name not in self.drew:
                self.drew.append(name)
            self._inside[-1] = (name, before, now)

    def _leave(self, name: str) -> Callable[..., None]:
        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            if self._inside and self._inside[-1][0] == name:
                self._notice()
                _, before, _ = self._inside.pop()
                if name in self._seeded:
                    torch.set_rng_state(before)
                elif self._inside:  # numbers that a module inside drew are not its caller's
                    self._inside[-1] = (*self._inside[-1][:2], torch.get_rng_state())
            size = _size(output)
            if size is not None:
                self.sizes.setdefault(name, []).append(size)

        return leave


def _size(output: Any) -> float | None:
    """The norm of the first tensor with fractions in a module's result."""
    for leaf in tree_leaves(output):
        # Not one that only stands for a tensor elsewhere.
        if type(leaf) in (torch.Tensor, nn.Parameter) and leaf.is_floating_point():
            with torch.no_grad():
                return float(torch.linalg.vector_norm(leaf.double()))
    return None


def first_that_differs(found: Sizes, plain: Sizes, allowed: float) -> tuple[str, float] | None:
    """The first module, in the order in which they returned, whose results have other sizes, and
    by how much relative to the plain ones. Modules that one side does not have are passed over.

    >>> first_that_differs({"a": [1.0], "b": [2.0]}, {"a": [1.0], "b": [2.5]}, 1e-4)
    ('b', 0.2)
    """
    for name, expected in plain.items():
        values = found.get(name)
        if not values:
            continue
        distances = [_distance(value, values) for value in expected]
        apart = max(distances + [_distance(value, expected) for value in values])
        if apart > allowed:
            return name, apart
    return None


def _distance(value: float, others: list[float]) -> float:
    """To the nearest of them: recomputed calls appear twice, and microbatches in any order."""
    if math.isnan(value):
        return 0.0 if any(math.isnan(other) for other in others) else math.inf
    return min(abs(value - other) / max(abs(value), abs(other), 1e-6) for other in others)


RandomState = tuple[torch.Tensor, Any, Any]


def random_state() -> RandomState:
    """State of the random generators of torch on the CPU, of Python and of NumPy."""
    numpy = sys.modules.get("numpy.random")
    return torch.get_rng_state(), random.getstate(), None if numpy is None else numpy.get_state()


def set_random_state(values: RandomState) -> None:
    """Sets the generators to such a state."""
    torch.set_rng_state(values[0])
    random.setstate(values[1])
    if values[2] is not None:
        import numpy as np  # noqa: PLC0415 - only where the script did

        np.random.set_state(values[2])


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, what is drawn is not missing afterwards.

    >>> torch.manual_seed(0) and None
    >>> with undisturbed():
    ...     first = torch.rand(1)
    >>> torch.equal(torch.rand(1), first)
    True
    """
    kept = random_state()
    try:
        yield
    finally:
        set_random_state(kept)
