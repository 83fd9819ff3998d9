# SPDX-License-Identifier: Apache-2.0
"""The library's lines on stderr, in the form of the launcher's. Rank 0 speaks for the job."""

from __future__ import annotations

import functools
import logging

from smdistributed import _runtime

_rank = 0


def configure(rank: int) -> None:
    global _rank  # noqa: PLW0603 - of this process
    _rank = rank


def info(text: str) -> None:
    """Says something once per job."""
    if _rank == 0:
        _runtime.write_log(logging.INFO, text)


def warning(text: str) -> None:
    """Warns once per job."""
    if _rank == 0:
        _runtime.write_log(logging.WARNING, text)


def warning_here(text: str) -> None:
    """Warns of something that concerns this rank alone."""
    _runtime.write_log(logging.WARNING, text)


@functools.cache
def warn_once(text: str) -> None:
    """As ``warning_here``, once a process."""
    warning_here(text)
