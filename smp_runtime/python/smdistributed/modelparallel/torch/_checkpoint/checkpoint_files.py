# SPDX-License-Identifier: Apache-2.0
"""Objects in files: written whole or not at all, with a checksum, by the runtime in C++."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import IO, Any, cast

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


class _Stream:
    """The file object that ``torch.save`` writes to."""

    def __init__(self, file: _runtime.AtomicFile) -> None:
        self._file = file
        self.error: SMPCheckpointError | None = None

    def write(self, data: Any) -> int:
        try:
            self._file.write(data)
        except SMPCheckpointError as error:
            # torch goes on after a failed write, and then blames its own archive.
            self.error = self.error or error
            raise
        return memoryview(data).nbytes

    def flush(self) -> None:
        """All is flushed at the end, by the commit."""


def write_object(
    path: str | os.PathLike[str],
    obj: Any,
    *,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
) -> _runtime.FileDigest:
    """``torch.save`` into a file that appears when it is complete and durable.

    Raises SMPCheckpointError with the system's reason; what was at ``path`` stays then.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_object(folder + "/state", {"epoch": 3})
    ...     written.name, read_object(folder + "/state")
    ('state', {'epoch': 3})
    """
    file = _runtime.AtomicFile(path)
    stream = _Stream(file)
    try:
        torch.save(
            obj,
            cast(IO[bytes], stream),
            pickle_module=pickle_module,
            pickle_protocol=pickle_protocol,
        )
    except Exception as error:
        if stream.error is not None:
            raise stream.error from None
        raise SMPCheckpointError(
            f"an object of type {type(obj).__name__} cannot be written to {path}: {error}"
        ) from error
    return file.commit()


def read_object(path: str | os.PathLike[str], **load_arguments: Any) -> Any:
    """``torch.load`` of a trusted file: objects in it are unpickled.

    Raises SMPCheckpointError for a file that is absent, cut short or no archive.
    """
    load_arguments.setdefault("weights_only", False)
    try:
        return torch.load(path, **load_arguments)
    except FileNotFoundError as error:
        raise SMPCheckpointError(f"there is no file {path}") from error
    except Exception as error:
        # Damaged pickles raise errors of any type.
        raise SMPCheckpointError(f"cannot read {path}: {type(error).__name__}: {error}") from error


def read_marker_or_object(path: Path) -> Any:
    """User content; an empty file, as Transformers touches to mark a format, is an empty dict."""
    return {} if path.stat().st_size == 0 else read_object(path)
