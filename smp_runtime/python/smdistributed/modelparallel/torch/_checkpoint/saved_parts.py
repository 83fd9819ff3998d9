# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in parts, as they lie in their folders."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import (
    read_object,
    read_user_content,
)
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import Slices, slices_from_json
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_OF_SHARD = re.compile(r"optimizer_(?:\d+_\d+_)?\d+\.pt")


class PartialCheckpoint:
    """Reads the files of ``folder``, each compared with its checksum. Without a manifest, as in
    folders of other tools, the names of the files tell the degrees. ``weights_only``: as of
    ``read_object``."""

    def __init__(self, folder: Path, *, weights_only: bool) -> None:
        self.folder, self._weights_only = folder, weights_only
        manifest = folder / "manifest.json"
        self._manifest = _runtime.Manifest.read(manifest) if manifest.is_file() else None
        if self._manifest is not None:
            self.pp, self.tp = self._manifest.pp, self._manifest.tp
            return
        if (folder / "model_0.pt").is_file():  # of sharded data parallelism
            self.pp = self.tp = 1
            return
        parts = [re.fullmatch(r"model_(\d+)_(\d+)\.pt", file.name) for file in folder.iterdir()]
        numbers = [(int(part[1]), int(part[2])) for part in parts if part]
        if not numbers:
            raise SMPCheckpointError(f"{folder} holds neither manifest.json nor model_0_0.pt")
        self.pp, self.tp = (1 + max(values) for values in zip(*numbers, strict=True))

    def names_for(self, tp_rank: int | None = None, stage: int | None = None) -> list[str]:
        """Files of the manifest, here or not, that a rank reads: those that the job has once, and
        the parts of its pipeline stage and tensor rank if these are stored by themselves. Without
        ``stage`` the parts of all; without ``tp_rank`` none."""
        names = [] if self._manifest is None else [file.name for file in self._manifest.files]
        parts = [name for name in names if re.fullmatch(r"(model|optimizer)_\d+.*\.pt", name)]
        own = parts if tp_rank is not None else []
        if stage is not None and not any(_OF_SHARD.fullmatch(name) for name in parts):
            own = [f"{kind}_{stage}_{tp_rank}.pt" for kind in ("model", "optimizer")]
        return [name for name in names if name not in parts or name in own]

    def slices(self, tp_size: int) -> Slices | None:
        """Layout of entries over tensor ranks, for a job with ``tp_size`` of them. None if
        nothing says so, and they are sliced as in any job of that degree.

        Raises SMPCheckpointError if nothing says so, and the job that saved had another degree.
        """
        path = self.folder / "slices.json"
        if path.is_file():
            self._verify(path)
            return slices_from_json(path.read_text(encoding="utf-8"), str(path))
        if self.tp == 1:
            return Slices({}, {})
        if self.tp != tp_size:
            raise SMPCheckpointError(
                f"{self.folder} was saved with tensor_parallel_degree {self.tp} by a library that "
                f"left no slices.json, and this job has {tp_size}; start it with {self.tp}"
            )
        return None

    def files(self, kind: str, tp_rank: int, stage: int | None = None) -> list[str]:
        """The parts of a tensor rank: of all pipeline stages, or of one."""
        if kind == "model" and self._is_short:
            return ["model_0.pt"]
        stages = range(self.pp) if stage is None else [stage]
        return [f"{kind}_{pp}_{tp_rank}.pt" for pp in stages]

    @property
    def has_optimizer(self) -> bool:
        """False for what a job without an optimizer saved."""
        of_folder = [file.name for file in self.folder.iterdir()]
        names = of_folder if self._manifest is None else [one.name for one in self._manifest.files]
        return any(name.startswith("optimizer_") for name in names)

    @property
    def _is_short(self) -> bool:
        """True if names are those of sharded data parallelism alone: without degrees."""
        return (self.folder / "model_0.pt").is_file()

    def shards(self, tp_rank: int) -> list[str]:
        """Files of sharded or 16-bit state, of all pipeline stages; none without such."""
        prefix = "" if self._is_short else rf"\d+_{tp_rank}_"
        pattern = re.compile(rf"optimizer_{prefix}\d+\.pt")
        found = [file.name for file in self.folder.iterdir() if pattern.fullmatch(file.name)]
        return sorted(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])

    def read(self, name: str, *, mmap: bool = False) -> Any:
        path = self.folder / name
        if not path.is_file():
            there = sorted(file.name for file in self.folder.iterdir())
            raise SMPCheckpointError(
                f"{name} is missing in {self.folder}, a checkpoint of {self.pp} partitions; there "
                f"are {', '.join(there[:8]) or 'no files'}"
            )
        manifest = self._manifest_with(path)
        if manifest is None:
            return self._read(path, mmap=mmap)
        # What is copied out of the file's pages is not compared a second time, record by record.
        with ThreadPoolExecutor(1) as beside:
            verified = beside.submit(manifest.verify, path)
            if not self._weights_only:
                verified.result()  # before code of the file runs
            try:
                content = self._read(path, mmap=True, copies=not mmap)
            finally:
                verified.result()  # first, since it says what is damaged
        return content

    def _read(self, path: Path, *, mmap: bool, copies: bool = False) -> Any:
        return read_object(
            path, weights_only=self._weights_only, map_location="cpu", mmap=mmap, copies=copies
        )

    def partition_json(self) -> str:
        """The partition decision; empty where the folder has none."""
        path = self.folder / "partition.json"
        if not path.is_file():
            return ""
        self._verify(path)
        return path.read_text(encoding="utf-8")

    def user_content(self) -> Any:
        path = self.folder / "user_content.pt"
        if not path.is_file():
            if self._manifest is not None and path.name in self._manifest:
                raise SMPCheckpointError(f"user_content.pt is missing in {self.folder}")
            return {}
        self._verify(path)
        return read_user_content(path, weights_only=self._weights_only)

    def _manifest_with(self, path: Path) -> _runtime.Manifest | None:
        """The folder's manifest, if it has a checksum of the file."""
        return self._manifest if self._manifest and path.name in self._manifest else None

    def _verify(self, path: Path) -> None:
        """Compares a file with its checksum, if the folder has one of it."""
        if manifest := self._manifest_with(path):
            manifest.verify(path)


def open_parts(root: Path, tag: str | None, *, weights_only: bool) -> PartialCheckpoint:
    """The checkpoint in parts ``tag`` of the folder ``root``, without a tag the newest.

    Raises SMPCheckpointError if it is not there.
    """
    name = (tag if tag is not None else newest(root, partial=True)).removesuffix(_runtime.PARTIAL)
    folder = _runtime.locate(root, name + _runtime.PARTIAL, name + _runtime.PARTIAL)
    if not folder.is_dir():
        raise SMPCheckpointError(absent(root, name + _runtime.PARTIAL))
    return PartialCheckpoint(folder, weights_only=weights_only)


def newest(root: Path, *, partial: bool) -> str:
    """The name of the newest checkpoint of ``root``.

    Raises SMPCheckpointError if nothing says it, or if it is of the other kind.
    """
    path = root / _runtime.NEWEST
    if not path.is_file():
        raise SMPCheckpointError(
            f"no tag was given, and {path}, which names the newest checkpoint, is not there"
        )
    name = path.read_text(encoding="utf-8").strip()
    if partial and not _runtime.locate(root, name, name).is_file():
        return name
    if not partial and not name.endswith(_runtime.PARTIAL):
        return name
    kind = "whole model; give partial=False" if partial else "partial one; give partial=True"
    raise SMPCheckpointError(f"{path} names {name}, a {kind}, or the tag of another checkpoint")


def absent(root: Path, name: str) -> str:
    """Text of an error about a checkpoint that is not there."""
    if not root.is_dir():
        return f"there is no checkpoint folder {root}"
    there = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    return (
        f"there is no checkpoint {name} in {root}; there are "
        f"{', '.join(there[:8]) or 'no files'}{' and more' if len(there) > 8 else ''}"
    )
