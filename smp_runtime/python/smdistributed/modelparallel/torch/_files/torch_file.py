# SPDX-License-Identifier: Apache-2.0
"""Looks into a file of ``torch.save`` without unpickling it: alone or within a longer one, a zip
archive of records with checksums, of which one is a pickle."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any

from smdistributed.modelparallel.torch._files.inert_pickle import BadPickle, read_inert

_BLOCK = 1 << 20
_BEGIN = 512  # bytes: the name of the first record is in them
_MAGIC = b"PK\x03\x04"
#: What began a file before PyTorch 1.6: the pickle of a number.
_OLD_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class BadFile(ValueError):
    """A file, or a part of one, is not whole. The text follows its name: "is cut off"."""


def begins_as_torch_file(path: Path) -> bool:
    """True for whatever name, also where the end is missing."""
    try:
        with path.open("rb") as file:
            begin = file.read(_BEGIN)
    except OSError:
        return False
    return begin.startswith(_OLD_MAGIC) or (begin.startswith(_MAGIC) and b"/data.pkl" in begin)


class TorchFile:
    """The archive at ``offset`` of a file, ``length`` bytes of it (all). The file stays open for as
    long as this is used. Raises BadFile for what is no archive, or for one that is cut off."""

    def __init__(self, file: IO[bytes], offset: int = 0, length: int | None = None) -> None:
        size = os.fstat(file.fileno()).st_size
        length = size - offset if length is None else length
        if offset + length > size:
            raise BadFile(f"is cut off: it has {size} bytes of at least {offset + length}")
        window = io.BufferedReader(Window(file, offset, length), _BLOCK)
        begin = window.peek(len(_OLD_MAGIC))
        self.is_old = begin.startswith(_OLD_MAGIC)
        """True for one of before PyTorch 1.6, of which nothing can be checked."""
        if self.is_old:
            return
        if not begin.startswith(_MAGIC):
            raise BadFile("is no file of torch.save: it does not begin as one")
        try:
            self._zip = zipfile.ZipFile(window)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise BadFile(
                f"is cut off, or damaged at its end: {length} bytes without the directory of the "
                "archive"
            ) from error
        pickles = [one for one in self._zip.infolist() if one.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise BadFile("is an archive without the record data.pkl")
        self._pickle = pickles[0]
        self._root = self._pickle.filename.removesuffix("data.pkl")

    @property
    def has_checksums(self) -> bool:
        """False where the writer left them out: torch.serialization.set_crc32_options(False)."""
        return not self.is_old and any(one.CRC for one in self._zip.infolist())

    def check_records(self) -> None:
        """Reads everything. Raises BadFile for the first record that differs from its checksum."""
        for one in [] if self.is_old else self._zip.infolist():
            with self._named(one):
                if not self.has_checksums:
                    one.CRC = None  # type: ignore[assignment]  # zipfile compares none then
                with self._zip.open(one) as record:
                    while record.read(_BLOCK):
                        pass

    def content(self) -> Any:
        """What the file holds, as read_inert() has it. Raises BadFile."""
        if self.is_old:
            return None
        sizes = {one.filename: one.file_size for one in self._zip.infolist()}
        with self._named(self._pickle), self._zip.open(self._pickle) as record:
            try:
                return read_inert(record, lambda key: sizes.get(f"{self._root}data/{key}"))
            except BadPickle as error:
                raise BadFile(f"is damaged: {error}") from error

    def _named(self, one: zipfile.ZipInfo) -> _Named:
        return _Named(one.filename.removeprefix(self._root))


class _Named:
    """Turns what zipfile raises into BadFile with the name of a record."""

    def __init__(self, record: str) -> None:
        self._record = record

    def __enter__(self) -> None: ...

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, zipfile.BadZipFile | EOFError | NotImplementedError | RuntimeError):
            raise BadFile(f"is damaged: record {self._record}: {error}") from error
        if isinstance(error, OSError):
            raise BadFile(f"cannot be read: {error.strerror}") from error


class Window(io.RawIOBase):
    """``length`` bytes of a file from ``offset`` on."""

    def __init__(self, file: IO[bytes], offset: int, length: int) -> None:
        self._descriptor, self._offset, self._length = file.fileno(), offset, length
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._length}[whence]
        if begin + offset < 0:
            raise ValueError("a place before the begin")
        self._place = begin + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._length - self._place))
        got = os.preadv(self._descriptor, [memoryview(buffer)[:count]], self._offset + self._place)
        self._place += got
        return got
