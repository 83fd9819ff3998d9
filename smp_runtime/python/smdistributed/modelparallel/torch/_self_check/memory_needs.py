# SPDX-License-Identifier: Apache-2.0
"""Memory that this host has left, and that the check of a model takes. [bytes]"""

from __future__ import annotations

from pathlib import Path

from torch import nn

_ROOT = Path("/")
#: Copies of each parameter at the worst moment, the update: the copy; values, gradients and two
#: moments before it, as they came and as they are stepped; values and moments after it.
_COPIES = 12


def needed_bytes(module: nn.Module) -> int:
    """Memory that the first rank needs to check steps of ``module``, apart from activations.

    >>> needed_bytes(nn.Linear(2, 3))
    432
    """
    elements = sum(parameter.numel() for parameter in module.parameters())
    wide = any(p.element_size() > 4 for p in module.parameters())
    buffers = sum(buffer.nbytes for buffer in module.buffers())
    return _COPIES * elements * (8 if wide else 4) + buffers


def available_bytes(root: Path = _ROOT) -> int | None:
    """Memory that processes of this host or container may still take; None where the system does
    not say."""
    limits = [_host(root), _container(root)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _host(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container(root: Path) -> int | None:
    """Memory left in the control group, version 2 or 1; that of cached files can be taken back."""
    for limit, used, held, key in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
         "total_inactive_file"),
    ):  # fmt: skip
        folder = root / "sys/fs/cgroup"
        numbers = [*_lines(folder / limit), *_lines(folder / used)]
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            stats = dict(line.split()[:2] for line in _lines(folder / held))
            free = int(numbers[0]) - int(numbers[1]) + int(stats.get(key, 0))
            return max(0, free)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
