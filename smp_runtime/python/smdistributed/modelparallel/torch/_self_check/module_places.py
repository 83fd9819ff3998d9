# SPDX-License-Identifier: Apache-2.0
"""Modules of a job that the wrapped module had, too, and that are on one rank."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from smdistributed.modelparallel.torch.ports import Model


def kept_modules(model: Model) -> Iterator[tuple[str, nn.Module]]:
    """Modules of this rank's partition that tensor parallelism has not replaced, with names."""
    replaced = tuple(model.replaced())
    return (
        (name, module)
        for name, module in model.local_named_modules()
        if not _is_inside(name, replaced)
    )


def modules_in_one_place(model: Model) -> list[str]:
    """Names of those of all partitions that have everything inside them on the same one."""
    ownership, replaced = model.ownership, tuple(model.replaced())
    return [
        name
        for name, module in model.get_module().named_modules()
        if not _is_inside(name, replaced)
        and len({ownership.of_module(part) for part in module.modules()}) == 1
    ]


def _is_inside(name: str, replaced: tuple[str, ...]) -> bool:
    """True if a module is, or is in, one of those that were replaced."""
    return any(one in ("", name) or name.startswith(f"{one}.") for one in replaced)
