# SPDX-License-Identifier: Apache-2.0
"""Objects in files: written whole or not at all, with a checksum, by the runtime in C++, and read
by ``torch.load``. One save of a checkpoint by all ranks is staged, written, and published in one
step, or not at all."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, cast

import torch

from smdistributed import _runtime
from smdistributed.modelparallel import __version__
from smdistributed.modelparallel.torch._checkpoint.file_contents import archive_of
from smdistributed.modelparallel.torch._files.harmless_classes import harmless_allowed
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPError
from smdistributed.modelparallel.torch.state_mod import state


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
    path: str | os.PathLike[str], obj: Any, *, pickle_module: Any = pickle, pickle_protocol: int = 2
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


def read_object(
    path: str | os.PathLike[str],
    *,
    weights_only: bool = True,
    copies: bool = False,
    **load_arguments: Any,
) -> Any:
    """``torch.load`` of a file. No code of it runs unless ``weights_only`` is False: it may hold
    what torch allows, and objects of ``HARMLESS`` classes. ``copies``: a copy of that, which with
    ``mmap=True`` is made out of the file's pages, and takes half as long as reading does.

    Raises SMPCheckpointError for a file that is absent, cut short or no archive, or that holds
    something else, with its class.
    """
    try:
        with harmless_allowed() if weights_only else contextlib.nullcontext():
            content = torch.load(path, weights_only=weights_only, **load_arguments)
        return copy.deepcopy(content) if copies else content
    except FileNotFoundError as error:
        raise SMPCheckpointError(f"there is no file {path}") from error
    except Exception as error:
        # Damaged pickles raise errors of any type.
        if weights_only and (refusal := _refusal(str(error))):  # torch's text has other advice
            raise SMPCheckpointError(f"cannot read {path}: {refusal}") from None
        raise SMPCheckpointError(f"cannot read {path}: {type(error).__name__}: {error}") from error


def _refusal(error: str) -> str:
    """Why ``torch.load`` with ``weights_only`` refused what a file holds, and the way out, from the
    text of its error; "" for errors of other kinds."""
    trust = "if you trust the file, give weights_only=False to the call that reads it"
    if name := re.search(r"GLOBAL (\S+) was not an allowed", error):
        allow = f"torch.serialization.add_safe_globals([{name[1]}])"
        return f"it holds {name[1]}, which could run code; {trust}, or allow it alone by {allow}"
    if name := re.search(r"GLOBAL (\S+) whose module|but got <class '(\S+)'>", error):
        return f"it holds {name[1] or name[2]}, which could run code; {trust}"
    if "Unsupported operand" in error:
        return f"it is damaged, or was saved with a pickle_protocol other than 2; {trust}"
    return ""


def read_user_content(path: Path, *, weights_only: bool) -> Any:
    """An empty file, as Transformers touches to mark a format, is an empty dict."""
    return {} if path.stat().st_size == 0 else read_object(path, weights_only=weights_only)


_SAVE = "smp.save_checkpoint"


@contextmanager
def checkpoint_save(
    root: Path, name: str, what: str = _SAVE, *, by_host: bool = False
) -> Iterator[_runtime.CheckpointSave]:
    """Opens a save: files that the body writes into ``folder`` and adds are published by the
    caller. An error of any rank is raised on all of them, begins with ``what``, and leaves nothing
    behind. ``by_host``: each host has a ``root`` of its own, whose paths end alike."""
    session, others = state.require_initialized(what), state.background_saves
    tidies = others is None or not others.are_under_way
    save = _runtime.CheckpointSave(session, what, root, name, __version__, tidies, by_host)
    with _telling(save.tell):
        yield save


class Files(Protocol):
    """Files of a save, by name."""

    def write(self, name: str, obj: Any) -> None: ...
    def write_text(self, name: str, text: str | bytes) -> None: ...


def rank0s_file(name: str, obj: Any) -> bytes | None:
    """The bytes of the file ``name`` that ``torch.save`` writes of rank 0's ``obj``, on all ranks;
    None of None. All ranks call it. Raises on rank 0 for what cannot be written."""
    content, failure = None, None
    if ranks.rank() == 0 and obj is not None:
        stream = io.BytesIO()
        try:
            torch.save(obj, stream)
            content = stream.getvalue()
        except Exception as error:
            failure = SMPCheckpointError(
                f"an object of type {type(obj).__name__} cannot be written to {name}: {error}"
            )
    told: bytes | None = comm.broadcast_from_rank0(content)
    if failure is not None:
        raise failure
    return told


class WrittenFiles:
    """Those that are written at once."""

    def __init__(self, save: _runtime.CheckpointSave) -> None:
        self._save = save

    def write(self, name: str, obj: Any) -> None:
        self._save.add(archive_of(name, obj).write(self._save.folder))

    def write_text(self, name: str, text: str | bytes) -> None:
        self._save.add(_runtime.write_file(self._save.folder / name, text))


@contextmanager
def agreement(what: str) -> Iterator[None]:
    """Raises on all ranks what one of them raised inside: else the others would wait for it."""
    session = state.require_initialized(what)
    with _telling(lambda error: _runtime.end_together(session, what, error)):
        yield


@contextmanager
def _telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Tells all ranks what is raised inside, or "" where nothing is."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(SMPError):  # what failed elsewhere, or because of this
            tell(str(error) or type(error).__name__)
        raise
    tell("")
