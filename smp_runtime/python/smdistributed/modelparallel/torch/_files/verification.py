# SPDX-License-Identifier: Apache-2.0
"""Whether checkpoints are whole: theirs, ours, anybody's. Reads every byte, holds none of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from smdistributed import _runtime
from smdistributed.modelparallel.torch._files.checkpoint_kinds import (
    Checkpoint,
    checkpoints_below,
)
from smdistributed.modelparallel.torch._files.digests import (
    DIGESTS,
    Digests,
    compare,
    read_digests,
    write_digests,
)
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

_READERS = 4  # files at a time: sums and reads hold no interpreter lock


@dataclass
class Verification:
    """What was found of one checkpoint."""

    folder: Path
    kind: str
    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """Sentences, each about a file. Without one the checkpoint is whole."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what could not be checked."""

    @property
    def is_whole(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        verdict = "whole" if self.is_whole else "NOT WHOLE"
        lines = [f"{self.folder}: {self.kind}, {self.files} files, {self.bytes} bytes: {verdict}"]
        return "\n".join(lines + [f"  {line}" for line in self.problems + self.notes])


def verify_checkpoint(path: str | os.PathLike[str], *, record: bool = False) -> list[Verification]:
    """Reads the checkpoints in a folder, or one file, and says of each whether it is whole. Needs
    no job. Checkpoints of ``smp.save_checkpoint``, of ``torch.distributed.checkpoint``, weights
    of Hugging Face, and other files of ``torch.save`` and safetensors are known; folders within
    are looked through, too. Nothing that a file holds is run.

    Args:
        path: a checkpoint, a folder of several, or a file.
        record: writes sizes and checksums of what is whole into ``smp_digests.json`` beside it.
            Files of others have weak checksums or none; with these, later calls see any damage.

    Returns:
        One ``Verification`` each: ``folder``, ``kind``, ``files``, ``bytes`` and ``notes``.

    Raises:
        SMPCheckpointError: for one that is not whole, with every file that is cut off, missing,
            damaged or of another save; and where no checkpoint is found.
    """
    found = verifications(Path(path), record=record)
    bad = [str(one) for one in found if not one.is_whole]
    if bad:
        raise SMPCheckpointError("\n".join(bad))
    return found


def verifications(path: Path, *, record: bool = False) -> list[Verification]:
    """The same, with those that are not whole among them."""
    if not path.exists():
        raise SMPCheckpointError(f"there is no checkpoint {path}")
    found: list[Verification] = []
    for place, one in checkpoints_below(path):
        if isinstance(one, Checkpoint):
            found.append(_verify(place, one, record=record))
        else:
            found.append(Verification(place, "checkpoint", problems=[str(one)]))
    found += _of_root(path)
    if not found:
        there = sorted(entry.name for entry in path.iterdir())
        raise SMPCheckpointError(
            f"{path} holds no checkpoint that is known here: expected manifest.json, .metadata, "
            f"*.safetensors, *.index.json, *.pt, *.pth, *.bin or *.ckpt, or folders of such; there "
            f"{'is' if len(there) == 1 else 'are'} {', '.join(there[:8]) or 'no files'}"
            f"{' and more' if len(there) > 8 else ''}"
        )
    return found


def _of_root(path: Path) -> Iterator[Verification]:
    """What the folder of several checkpoints of ours says of them."""
    file = path / _runtime.NEWEST
    if not file.is_file():
        return
    found = Verification(path, "folder of checkpoints", 1, file.stat().st_size)
    name = file.read_text(encoding="utf-8", errors="replace").strip()
    if not _runtime.locate(path, name, name).exists():
        found.problems.append(f"{file.name} names {name!r}, which is missing")
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(".") and entry.name.endswith((".staging", ".writing")):
            found.notes.append(
                f"{entry.name} is of a save that was killed; the next one removes it"
            )
    yield found


def _verify(place: Path, one: Checkpoint, *, record: bool) -> Verification:
    found = Verification(place, one.kind, len(one.names))
    digests_file = _digests_file(place, one)
    try:
        digests = read_digests(digests_file)
    except BadFile as error:
        found.problems.append(f"{digests_file.name} {error}")
        return found
    with ThreadPoolExecutor(_READERS) as readers:
        results = list(readers.map(lambda name: _verify_file(one, name, digests), one.names))
    unchecked: dict[str, list[str]] = {}
    for name, (size, problem, note) in zip(one.names, results, strict=True):
        found.bytes += size
        if problem:
            found.problems.append(f"{name} {problem}")
        if note:
            unchecked.setdefault(note, []).append(name)
    for note, names in unchecked.items():
        more = f" and {len(names) - 1} others" if len(names) > 1 else ""
        found.notes.append(f"{names[0]}{more}: {note}; damage within values would not be seen")
    if found.is_whole:
        found.problems += one.check_together()
    if record and found.is_whole:
        read = [(name, _runtime.digest_of(one.place(name))) for name in one.names]
        write_digests(digests_file, {name: (one.bytes, one.crc32c) for name, one in read})
        found.notes.append(f"sizes and checksums are in {digests_file.name} now")
    return found


def problems_of(place: Path, one: Checkpoint, names: Sequence[str]) -> list[str]:
    """Sentences about some of its files, which are read whole; empty where nothing is wrong."""
    digests_file = _digests_file(place, one)
    try:
        digests = read_digests(digests_file)
    except BadFile as error:
        return [f"{digests_file.name} {error}"]
    found = [(name, _verify_file(one, name, digests)) for name in names]
    return [f"{name} {problem}" for name, (_, problem, _) in found if problem]


def _digests_file(place: Path, one: Checkpoint) -> Path:
    return place.with_name(f"{place.name}.{DIGESTS}") if place != one.folder else place / DIGESTS


def _verify_file(one: Checkpoint, name: str, digests: Digests) -> tuple[int, str, str]:
    """Size, problem and note."""
    path, size = one.place(name), 0
    try:
        if path.exists() and not path.is_file():
            return 0, "is no file", ""
        size = path.stat().st_size
        if name in digests:
            compare(path, *digests[name])
            return size, "", ""
        return size, "", one.check(name)
    except FileNotFoundError:
        return 0, "is missing", ""
    except BadFile as error:
        return size, str(error), ""
    except OSError as error:
        return size, f"cannot be read: {error.strerror}", ""
