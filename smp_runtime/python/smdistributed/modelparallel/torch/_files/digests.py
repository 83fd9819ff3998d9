# SPDX-License-Identifier: Apache-2.0
"""Sizes and checksums of files, in a file beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._files.torch_file import BadFile

DIGESTS = "smp_digests.json"
_FORMAT = 1

Digests = dict[str, tuple[int, int]]
"""Bytes and CRC-32C by name."""


def read_digests(file: Path) -> Digests:
    """Empty where there is no such file. Raises BadFile for what is none."""
    if not file.is_file():
        return {}
    try:
        read: Any = json.loads(file.read_text(encoding="utf-8"))
        if read["format"] != _FORMAT:
            raise BadFile(f"has format {read['format']}; this version reads {_FORMAT}")
        return {name: (int(one["bytes"]), int(one["crc32c"], 16))
                for name, one in read["files"].items()}  # fmt: skip
    except BadFile:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFile(f"is damaged: {error!r}") from error


def write_digests(file: Path, digests: Mapping[str, tuple[int, int]]) -> None:
    """Raises SMPCheckpointError."""
    listed = {name: {"bytes": size, "crc32c": f"{crc32c:08x}"}
              for name, (size, crc32c) in digests.items()}  # fmt: skip
    _runtime.write_file(file, json.dumps({"format": _FORMAT, "files": listed}, indent=1) + "\n")


def compare(path: Path, size: int, crc32c: int) -> None:
    """Raises BadFile unless a file has the size and the checksum that were written down."""
    found = path.stat().st_size
    if found != size:
        how = "is cut off" if found < size else "is of another save"
        raise BadFile(f"{how}: it has {found} bytes, and {size} were written")
    if _runtime.digest_of(path).crc32c != crc32c:
        raise BadFile("is damaged, or of another save: its checksum is not the one written down")
