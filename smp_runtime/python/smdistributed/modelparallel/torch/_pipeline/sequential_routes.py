# SPDX-License-Identifier: Apache-2.0
"""Routes of calls through an ``nn.Sequential``: from partition to partition, not over the
caller."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from torch import nn

from smdistributed.modelparallel.torch._partition.ownership import Ownership


@dataclass
class Part:
    """Some consecutive children: run here, or one call along ``route``, (owner, id) each."""

    children: list[nn.Module] = field(default_factory=list)
    route: list[tuple[int, int]] = field(default_factory=list)
    name: str = ""


class SequentialRoutes:
    """The parts of each container whose children lie on several partitions.

    Children of one partition that follow each other are called as one module, a segment. Segments
    have ids after those of the modules; all ranks number them alike.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._first_id = len(ownership.modules)
        self._segments: list[list[nn.Module]] = []
        #: Names of all that can be called, by id.
        self.names = list(ownership.module_names)
        self.parts: dict[nn.Sequential, list[Part]] = {}
        for name, module in zip(ownership.module_names, ownership.modules, strict=True):
            # A forward of the user's own may do anything with the children.
            if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
                self._add(name, module, ownership)

    def _add(self, name: str, container: nn.Sequential, ownership: Ownership) -> None:
        home = ownership.of_module(container)
        parts: list[Part] = []
        start = 0
        for owner, group in itertools.groupby(container, ownership.of_module):
            children = list(group)
            label = f"{name}[{start}:{start + len(children)}]"
            start += len(children)
            remote = owner != home
            if not parts or bool(parts[-1].route) != remote:
                parts.append(Part(name=label))
            part = parts[-1]
            part.children += children
            if remote:
                part.route.append((owner, self._segment(children, label, ownership)))
        if any(part.route for part in parts):
            self.parts[container] = parts

    def _segment(self, children: list[nn.Module], name: str, ownership: Ownership) -> int:
        if len(children) == 1:
            return ownership.module_id(children[0])
        self._segments.append(children)
        self.names.append(name)
        return self._first_id + len(self._segments) - 1

    def segment(self, module_id: int) -> list[nn.Module] | None:
        """The children that a segment's id stands for; None for the id of a module."""
        return None if module_id < self._first_id else self._segments[module_id - self._first_id]
