# SPDX-License-Identifier: Apache-2.0
"""Whether this process ends because it failed: then nobody may wait for the other ranks."""

from __future__ import annotations

import functools
import sys
from typing import Any, NoReturn

_codes: list[int] = []  # of the calls of sys.exit


def watch() -> None:
    """From now on remembers the code of ``sys.exit``; exit handlers cannot ask for it."""
    if hasattr(sys.exit, "__wrapped__"):
        return
    plain = sys.exit

    @functools.wraps(plain)
    def remembering(status: Any = None, /) -> NoReturn:
        # As the interpreter does: nothing is success, a text is printed and counts as 1.
        _codes.append(0 if status is None else status if isinstance(status, int) else 1)
        plain(status)

    sys.exit = remembering


def failure_code() -> int:
    """The exit code of a process that is failing, 0 for one that is not."""
    if getattr(sys, "last_value", None) is not None:
        return 1
    return _codes[-1] if _codes else 0
