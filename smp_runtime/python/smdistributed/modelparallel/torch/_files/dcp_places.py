# SPDX-License-Identifier: Apache-2.0
"""Where a checkpoint of ``torch.distributed.checkpoint`` is to be, and how it gets there whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX

from smdistributed.modelparallel.torch._files.dcp_folder import METADATA
from smdistributed.modelparallel.torch._files.digests import DIGESTS
from smdistributed.modelparallel.torch._files.disk import explained, sync
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


class Place(Protocol):
    """A save's target. Ranks write files into ``staging``; the checkpoint is there when one of
    them, the coordinator, has published it. Errors are SMPCheckpointError."""

    @property
    def target(self) -> Path | str:
        """What the script calls the checkpoint."""

    @property
    def staging(self) -> Path: ...

    @property
    def prefix(self) -> str:
        """What names of files begin with, beside what DCP gives them; known after ``begin``."""

    def check(self) -> None:
        """Raises where nothing can be written, on any rank."""

    def exists(self) -> bool:
        """True where there is a checkpoint, which the new one replaces."""

    def begin(self) -> None:
        """Prepares a save, on the coordinator."""

    def enter(self, prefix: str) -> None:
        """Prepares ``staging`` for a rank's files; ``prefix`` is that of ``begin``."""

    def take(self, names: Iterable[str]) -> None:
        """Takes over the files that this rank has written."""

    def publish(self) -> None:
        """Makes the checkpoint of what the ranks have written, on the coordinator, which has put
        ``.metadata`` and the sums into ``staging``."""

    def give_up(self) -> None:
        """Removes what this rank has written."""


class FolderPlace:
    """A folder that all ranks see: files are written beside it, and take its place."""

    prefix = ""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.staging = target.with_name(f".{target.name}.dcp.writing")

    def check(self) -> None:
        with explained(f"cannot write the checkpoint {self.target}"):
            _refuse_others(self.target)

    def exists(self) -> bool:
        return (self.target / METADATA).exists()

    def begin(self) -> None:
        with explained(f"cannot write the checkpoint {self.target}"):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            _bring_back(self.target)
            shutil.rmtree(self.staging, ignore_errors=True)  # of a save that was killed
            self.staging.mkdir()

    def enter(self, prefix: str) -> None:
        if not self.staging.is_dir():
            raise SMPCheckpointError(
                f"this rank does not see {self.staging}, which the first one has made; "
                "StorageWriter takes a folder that all hosts share"
            )

    def take(self, names: Iterable[str]) -> None:
        pass  # they are where they are to be

    def publish(self) -> None:
        with explained(f"cannot write the checkpoint {self.target}"):
            aside = _set_aside(self.target)
            if self.target.exists():
                self.target.rename(aside)
            self.staging.rename(self.target)
            sync(self.target.parent)
            shutil.rmtree(aside, ignore_errors=True)

    def give_up(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)


def readable(target: Path) -> Path:
    """The checkpoint, also where a save was killed while it took the place of another."""
    aside = _set_aside(target)
    return aside if not target.exists() and (aside / METADATA).is_file() else target


def _set_aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _bring_back(target: Path) -> None:
    aside = _set_aside(target)
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(target)


def _refuse_others(target: Path) -> None:
    """Refuses a folder that has anything besides a checkpoint, which would be gone with it."""
    if target.exists() and not target.is_dir():
        raise SMPCheckpointError(f"{target} is a file; expected a folder, or a path for one")
    for name in sorted(os.listdir(target)) if target.exists() else []:
        if name not in {METADATA, DIGESTS} and not name.endswith(DEFAULT_SUFFIX):
            raise SMPCheckpointError(
                f"{target} has {name}, which is no file of a checkpoint of DCP, and the new one "
                "takes the place of the whole folder; give a folder of its own"
            )
