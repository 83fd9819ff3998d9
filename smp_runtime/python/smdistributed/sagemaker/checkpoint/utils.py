# SPDX-License-Identifier: Apache-2.0
"""Old checkpoints removed, new ones kept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """Removes all but the last ``num_kept`` folders in ``directory``. Their order is by
    ``sort_fn(name)``; those whose names ``regex`` does not match are left alone, and so is all of
    them if ``num_kept`` is 0 or below. A missing ``directory`` is no error.

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
    folder = Path(directory)
    if not log or num_kept <= 0 or not folder.is_dir():
        return
    names = [one.name for one in folder.iterdir() if one.is_dir() and re.match(regex, one.name)]
    for name in sorted(names, key=sort_fn)[:-num_kept]:
        get_logger().info("removing the old checkpoint %s", folder / name)
        shutil.rmtree(folder / name, ignore_errors=True)
