# SPDX-License-Identifier: Apache-2.0
"""Kinds of checkpoints by what lies in a folder: which files belong to one, whether each is whole,
and whether they belong together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any, TypeAlias

from smdistributed import _runtime
from smdistributed.modelparallel.torch._files.dcp_folder import METADATA, DcpFolder
from smdistributed.modelparallel.torch._files.digests import Digests, compare
from smdistributed.modelparallel.torch._files.safetensors_file import facts_of
from smdistributed.modelparallel.torch._files.torch_file import (
    BadFile,
    TorchFile,
    begins_as_torch_file,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

MANIFEST = "manifest.json"
_DEPTH = 4  # folders within folders that are looked through
_INDEX = ".index.json"
_SAFE = ".safetensors"
_PICKLED = (".pt", ".pth", ".bin", ".ckpt")
NO_CHECKSUMS = "has no checksums"


class Checkpoint:
    """One checkpoint in ``folder``. The base is that of files that say nothing of each other."""

    kind = "files"

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.names = names
        """Files that belong to it, whether or not they are there."""

    def place(self, name: str) -> Path:
        return self.folder / name

    def check(self, name: str) -> str:
        """Reads one of its files. Returns what keeps it from being checked whole, or "". Raises
        BadFile, or OSError where it cannot be read."""
        return check_alone(self.place(name))

    def check_together(self) -> Iterator[str]:
        """Sentences about what does not belong together; each file is known to be whole."""
        return iter(())

    def entries(self) -> Iterator[tuple[str, Any]]:
        """Names and facts of what it holds. Raises BadFile."""
        for name in self.names:
            yield from entries_of(self.place(name))


Found: TypeAlias = Checkpoint | BadFile


class Parts(Checkpoint):
    """What smp.save_checkpoint writes with partial=True, or folders of its form by others."""

    def __init__(self, folder: Path) -> None:
        files = sorted(file.name for file in folder.iterdir() if file.is_file())
        self._manifest: _runtime.Manifest | None = None
        if MANIFEST in files:
            self._manifest = _runtime.Manifest.read(folder / MANIFEST)
            self._digests = _digests_of(self._manifest)
            files = list(self._digests)
        super().__init__(folder, [name for name in files if not name.startswith(".")])

    @property
    def kind(self) -> str:  # type: ignore[override]
        if self._manifest is None:
            return "checkpoint in parts without manifest.json"
        of = self._manifest
        return (f"checkpoint in parts of smp {of.library}, pipeline {of.pp}, tensor {of.tp}, "
                f"reduced data {of.rdp}")  # fmt: skip

    def check(self, name: str) -> str:
        if self._manifest is None:
            return super().check(name)
        compare(self.place(name), *self._digests[name])
        return ""

    def check_together(self) -> Iterator[str]:
        if self._manifest is not None:
            return
        for kind in ("model", "optimizer"):
            form = re.compile(rf"{kind}((?:_\d+)+)\.pt")
            found = [one[1] for name in self.names if (one := form.fullmatch(name))]
            there = {tuple(map(int, one.split("_")[1:])) for one in found}
            for missing in islice(_gaps(there), 8):
                name = "_".join(map(str, (kind, *missing)))
                yield f"{name}.pt is missing: there are parts of higher numbers"

    def entries(self) -> Iterator[tuple[str, Any]]:
        for name in self.names:
            if name.endswith(".pt"):
                for entry, facts in entries_of(self.place(name)):
                    yield f"{name}: {entry}", facts


class Whole(Checkpoint):
    """What smp.save_checkpoint writes with partial=False, by its manifest."""

    def __init__(self, root: Path, tag: str) -> None:
        self._tag, self._root = tag, root
        self._manifest = _runtime.Manifest.read(_runtime.locate(root, tag, f"{tag}.{MANIFEST}"))
        self._digests = _digests_of(self._manifest)
        super().__init__(root, list(self._digests))

    @property
    def kind(self) -> str:  # type: ignore[override]
        return f"whole model {self._tag} of smp {self._manifest.library}"

    def place(self, name: str) -> Path:
        return _runtime.locate(self._root, self._tag, name)

    def check(self, name: str) -> str:
        compare(self.place(name), *self._digests[name])
        return ""


class Dcp(Checkpoint):
    kind = "checkpoint of torch.distributed.checkpoint"

    def __init__(self, folder: Path) -> None:
        try:
            self._read = DcpFolder(folder)
        except BadFile as error:
            raise BadFile(f"{METADATA} {error}") from error
        self._pieces = self._read.files()
        super().__init__(folder, list(self._pieces))

    def check(self, name: str) -> str:
        return "" if self._read.check_file(name, self._pieces[name]) else NO_CHECKSUMS

    def entries(self) -> Iterator[tuple[str, Any]]:
        yield from self._read.tensors.items()
        for piece in self._read.pieces:
            if piece.facts is None:
                yield piece.entry, None


class Indexed(Checkpoint):
    """Weights in shards with an index, as Hugging Face publishes them."""

    kind = "model in shards with an index"

    def __init__(self, index: Path) -> None:
        self._index = index
        try:
            read = json.loads(index.read_text(encoding="utf-8"))
            self._places: dict[str, str] = dict(read["weight_map"])
            self._total = read.get("metadata", {}).get("total_size")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadFile(f"{index.name} is no index of a model: {error!r}") from error
        for name in self._places.values():
            if not isinstance(name, str) or name != Path(name).name:
                raise BadFile(f"{index.name} names {name!r}, which is no file of this folder")
        super().__init__(index.parent, sorted(set(self._places.values())))

    def check_together(self) -> Iterator[str]:
        wanted = len(self.names)
        total = 0
        for name in self.names:
            numbers = re.search(r"-of-(\d+)\.", name)
            if numbers and int(numbers[1]) != wanted:
                yield (f"{name} is one of {int(numbers[1])} shards, and {self._index.name} has "
                       f"{wanted}: they are of different saves")  # fmt: skip
            held = dict(entries_of(self.place(name)))
            total += sum(getattr(facts, "bytes", 0) for facts in held.values())
            listed = {entry for entry, place in self._places.items() if place == name}
            if lost := sorted(listed - held.keys()):
                yield (f"{name} has no {lost[0]}, which {self._index.name} says of it"
                       f"{_and_more(lost)}: they are of different saves")  # fmt: skip
            if extra := sorted(held.keys() - listed):
                yield (f"{name} has {extra[0]}, which {self._index.name} does not list"
                       f"{_and_more(extra)}: they are of different saves")  # fmt: skip
        is_safe = all(name.endswith(_SAFE) for name in self.names)
        if is_safe and isinstance(self._total, int) and total != self._total:
            yield f"{self._index.name} has a total_size of {self._total}, and shards hold {total}"


def checkpoints_below(path: Path, depth: int = _DEPTH) -> Iterator[tuple[Path, Found]]:
    """The checkpoints of a folder and of folders within, or a file as one, with their places. What
    keeps one from being looked into comes in its place."""
    if path.is_file():
        yield path, Checkpoint(path.parent, [path.name])
        return
    try:
        yield from ((path, one) for one in _checkpoints_in(path))
    except (BadFile, SMPCheckpointError) as error:
        yield path, BadFile(str(error))
    except OSError as error:
        yield path, BadFile(f"cannot be read: {error.strerror}")
        return
    for entry in sorted(path.iterdir()) if depth else []:
        if entry.is_dir() and not entry.name.startswith("."):
            yield from checkpoints_below(entry, depth - 1)


def _checkpoints_in(folder: Path) -> list[Checkpoint]:
    if (folder / METADATA).is_file():
        return [Dcp(folder)]
    there = {file.name for file in folder.iterdir() if file.is_file()}
    if MANIFEST in there or any(re.fullmatch(r"model_\d+(_\d+)?\.pt", name) for name in there):
        return [Parts(folder)]
    found: list[Checkpoint] = []
    for name in sorted(there):
        if name.endswith(f".{MANIFEST}"):
            found.append(Whole(folder, name.removesuffix(f".{MANIFEST}")))
        elif name.endswith(_INDEX):
            found.append(Indexed(folder / name))
    taken = {name for one in found for name in one.names}
    known = (*_PICKLED, _SAFE)
    rest = [name for name in sorted(there - taken)
            if name.endswith(known) or begins_as_torch_file(folder / name)]  # fmt: skip
    return [*found, Checkpoint(folder, rest)] if rest else found


def check_alone(path: Path) -> str:
    """As Checkpoint.check(), of a file by what it holds."""
    if path.suffix == _SAFE:
        facts_of(path)
        return NO_CHECKSUMS
    if path.suffix == ".json":
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise BadFile(f"is no JSON: {error}") from error
        return ""
    with path.open("rb", buffering=0) as file:
        archive = TorchFile(file)
        archive.check_records()
        archive.content()
        if archive.is_old:
            return "has the form from before PyTorch 1.6, of which nothing can be checked"
        return "" if archive.has_checksums else NO_CHECKSUMS


def entries_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Names and facts of what a file of torch.save or of safetensors holds. Raises BadFile."""
    if path.suffix == _SAFE:
        yield from facts_of(path).items()
        return
    with path.open("rb", buffering=0) as file:
        yield from leaves_of(TorchFile(file).content())


def leaves_of(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested dictionaries and lists, with their keys joined by dots."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from leaves_of(value, f"{prefix}{key}.")
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from leaves_of(value, f"{prefix}{number}.")
    else:
        yield prefix.removesuffix("."), content


def _digests_of(manifest: _runtime.Manifest) -> Digests:
    return {file.name: (file.bytes, file.crc32c) for file in manifest.files}


def _gaps(there: set[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Numbers below the highest ones that are not there."""
    if not there:
        return
    if len({len(one) for one in there}) > 1:
        return  # of different forms, which the names do not tell apart
    wanted = product(*(range(max(numbers) + 1) for numbers in zip(*there, strict=True)))
    yield from (one for one in wanted if one not in there)


def _and_more(names: list[str]) -> str:
    return f", and {len(names) - 1} more" if len(names) > 1 else ""
