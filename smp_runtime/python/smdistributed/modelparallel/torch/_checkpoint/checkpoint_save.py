# SPDX-License-Identifier: Apache-2.0
"""One save of a checkpoint by all ranks: staged, written, published in one step, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel import __version__
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import write_object
from smdistributed.modelparallel.torch.exceptions import SMPError
from smdistributed.modelparallel.torch.state_mod import state

_SAVE = "smp.save_checkpoint"


@contextmanager
def checkpoint_save(root: Path, name: str) -> Iterator[_runtime.CheckpointSave]:
    """Opens a save: files that the body writes into ``folder`` and adds are published by the
    caller. An error of any rank is raised on all of them, and leaves nothing behind."""
    save = _runtime.CheckpointSave(state.require_initialized(_SAVE), _SAVE, root, name, __version__)
    with _telling(save.tell):
        yield save


def write(save: _runtime.CheckpointSave, name: str, obj: Any) -> None:
    save.add(write_object(save.folder / name, obj))


def write_text(save: _runtime.CheckpointSave, name: str, text: str) -> None:
    save.add(_runtime.write_file(save.folder / name, text))


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
