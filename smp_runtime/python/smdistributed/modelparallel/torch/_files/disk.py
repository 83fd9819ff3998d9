# SPDX-License-Identifier: Apache-2.0
"""What both writers of folders ask of a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


def sync(path: Path) -> None:
    """Has a file, or the names in a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raises SMPCheckpointError, which begins with ``what``, for errors of the system inside."""
    try:
        yield
    except OSError as error:
        raise SMPCheckpointError(f"{what}: {error.filename}: {error.strerror}") from error
