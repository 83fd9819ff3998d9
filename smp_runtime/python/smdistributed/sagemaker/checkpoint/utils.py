# SPDX-License-Identifier: Apache-2.0
"""Old checkpoints removed, new ones kept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smdistributed.sagemaker._s3_objects import S3Objects, address_of, is_s3_uri
from smdistributed.sagemaker.logger import get_logger


def last_int(name: str) -> int:
    """The last number in a name; -1 without one.

    >>> last_int("llama_v2-120steps"), last_int("final")
    (120, -1)
    """
    numbers = re.findall(r"\d+", os.path.basename(name))
    return int(numbers[-1]) if numbers else -1


#: An order of folders, by the last number of their names.
SORT_BY_LAST_INT: Callable[[str], Any] = last_int


def limit_num_subdirs(
    directory: str | os.PathLike[str],
    num_kept: int,
    sort_fn: Callable[[str], Any] = SORT_BY_LAST_INT,
    regex: str = r".*",
    log: bool = True,
) -> None:
    """Removes all but the last ``num_kept`` folders in ``directory``, or below that prefix of S3.
    Their order is by ``sort_fn(name)``; those whose names ``regex`` does not match are left alone,
    and so is all of them if ``num_kept`` is 0 or below. A missing ``directory`` is no error.

    Args:
        log: True on the one rank that removes them, and says so; without effect elsewhere.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in (9, 10, 8):
    ...         os.mkdir(f"{folder}/model-{step}steps")
    ...     limit_num_subdirs(folder, 2, regex=r"^.*\\d+steps$")
    ...     sorted(os.listdir(folder))
    ['model-10steps', 'model-9steps']
    """
    if not log or num_kept <= 0:
        return
    folder = _Prefix(directory) if is_s3_uri(directory) else _Folder(directory)
    names = [name for name in folder.names() if re.match(regex, name)]
    for name in sorted(names, key=sort_fn)[:-num_kept]:
        get_logger().info("removing the old checkpoint %s/%s", directory, name)
        folder.remove(name)


class _Folder:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def names(self) -> list[str]:
        there = self._path.iterdir() if self._path.is_dir() else ()
        return [one.name for one in there if one.is_dir()]

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)


class _Prefix:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._begin = address_of(path) + "/"
        self._objects = S3Objects()
        self._found = self._objects.addresses(self._begin)

    def names(self) -> list[str]:
        below = [address.removeprefix(self._begin).split("/") for address in self._found]
        return sorted({path[0] for path in below if len(path) > 1})

    def remove(self, name: str) -> None:
        """What says that there is a checkpoint goes first."""
        own = [one for one in self._found if one.startswith(f"{self._begin}{name}/")]
        for address in sorted(own, key=lambda one: not one.endswith("/.metadata")):
            self._objects.remove(address)
