# SPDX-License-Identifier: Apache-2.0
"""Groups parameters of a model that are gathered together: those of one repeated block.

A block is an element of a ``ModuleList`` or ``Sequential``, as the layers of a transformer are; one
that holds more than half of the model is looked into. Outside of blocks each module stands for
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

_LISTS = (nn.ModuleList, nn.ModuleDict)


@dataclass
class Blocks:
    names: list[str] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)
    of_parameter: dict[nn.Parameter, int] = field(default_factory=dict)
    repeated: list[nn.Module] = field(default_factory=list)
    """Elements of lists; the others stand for themselves."""


def find_blocks(model: nn.Module) -> Blocks:
    """The block of each parameter; shared ones belong to the first.

    >>> layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    >>> model = nn.ModuleDict({"head": nn.Linear(2, 1), "layers": layers})
    >>> find_blocks(model).names
    ['head', 'layers.0', 'layers.1', 'layers.2']
    """
    blocks = Blocks()
    total = _elements(model)
    for name, module, whole in _cut("", model, total):
        if whole:
            blocks.repeated.append(module)
        number = len(blocks.names)
        mine = [p for p in module.parameters(recurse=whole) if p not in blocks.of_parameter]
        if not mine:
            continue
        blocks.names.append(name or "(root)")
        blocks.modules.append(module)
        blocks.of_parameter.update(dict.fromkeys(mine, number))
    return blocks


def _cut(name: str, module: nn.Module, total: int) -> Iterator[tuple[str, nn.Module, bool]]:
    """Modules, and whether what is below belongs to them."""
    yield name, module, False
    repeats = isinstance(module, (*_LISTS, nn.Sequential))
    for child_name, child in module.named_children():
        full_name = f"{name}.{child_name}" if name else child_name
        large = 2 * _elements(child) > total and any(True for _ in child.children())
        if repeats and not isinstance(child, _LISTS) and not large:
            yield full_name, child, True
        else:
            yield from _cut(full_name, child, total)


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
