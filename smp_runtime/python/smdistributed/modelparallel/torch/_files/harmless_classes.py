# SPDX-License-Identifier: Apache-2.0
"""Classes whose objects files may hold beside those that torch itself allows. Scripts keep such
objects next to a model: making one, and setting what is in it, runs nothing of the file's."""

from __future__ import annotations

import argparse
import datetime
import pathlib
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

#: Values of these types cannot hold references, whatever a file says of their layout; those of
#: texts, records and objects could.
_NUMBERS = {type(numpy.dtype(code)) for code in "?bhilqBHILQefdFD"}

#: Functions that numpy's scalars and arrays are made by; they check the count of bytes.
_MAKERS = [numpy.float64().__reduce__()[0], numpy.empty(0).__reduce__()[0]]

#: As ``torch.serialization.add_safe_globals`` takes them: with a name where files use others, too.
HARMLESS: list[Any] = [
    # Attributes by name, whose values have to be allowed in their turn.
    argparse.Namespace, types.SimpleNamespace,
    # Immutable values, whose constructors in C check what they get.
    bytes, frozenset, range,
    datetime.date, datetime.datetime, datetime.timedelta, datetime.timezone,
    # Texts; nothing is opened. Python 3.13 names another module.
    *((path, f"{module}.{path.__name__}") for path in (pathlib.PosixPath, pathlib.PurePosixPath)
      for module in ("pathlib", "pathlib._local")),
    # Numbers. numpy 2 and 1 name different modules.
    *((maker, f"numpy.{core}.multiarray.{maker.__name__}") for maker in _MAKERS
      for core in ("_core", "core")),
    numpy.ndarray, numpy.dtype, *_NUMBERS,
]  # fmt: skip

_allowing = threading.Lock()  # torch's list is one for the process


@contextmanager
def harmless_allowed() -> Iterator[None]:
    """Inside, ``torch.load`` with ``weights_only`` takes ``HARMLESS`` classes, too. What the script
    has allowed stays allowed afterwards. One thread at a time."""
    with _allowing:
        known = torch.serialization.get_safe_globals()
        added = [one for one in HARMLESS if one not in known]
        with torch.serialization.safe_globals(added):
            yield
