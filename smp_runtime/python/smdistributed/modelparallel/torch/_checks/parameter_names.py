# SPDX-License-Identifier: Apache-2.0
"""Lists of parameters in texts."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 3  # names in a list


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c", "d"])
    '4 parameters (a, b, c, ...)'
    >>> listed(["head.weight"])
    '1 parameter (head.weight)'
    """
    noun = "parameter" if len(names) == 1 else "parameters"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"{len(names)} {noun} ({', '.join(names[:_SHOWN])}{more})"


def listed_by_module(names: Sequence[str]) -> str:
    """The same, with the innermost module that has all of them.

    >>> listed_by_module(["block.0.weight", "block.0.bias", "block.1.weight"])
    '3 parameters of `block` (block.0.weight, block.0.bias, block.1.weight)'
    >>> listed_by_module(["inp.weight", "out.weight"])
    '2 parameters (inp.weight, out.weight)'
    """
    paths = [name.split(".")[:-1] for name in names]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    text = listed(names)
    return text.replace(" (", f" of `{'.'.join(shared)}` (", 1) if shared else text
