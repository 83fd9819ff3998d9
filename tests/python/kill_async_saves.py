# SPDX-License-Identifier: Apache-2.0
"""Kills processes that save beside training, each at another point of the save:
kill_async_saves.py POINTS.

A process saves step 1 and finishes it, then step 2, into the same folder and into one of its own,
and is killed where its threads come to the n-th line of what saves. What is left has to be whole,
or refused by name. Prints how many kills left which step.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import smdistributed.sagemaker  # noqa: F401 - the finder of the next ones, also without .pth
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import (
    async_save,
    maybe_finalize_async_calls,
    save,
)

WATCHED = ("dcp_storage.py", "dcp_places.py", "disk.py", "digests.py", "save_parts.py",
           "async_utils.py", "state_dict_saver.py")  # fmt: skip


def content(value: int) -> dict[str, torch.Tensor]:
    return {str(number): torch.full((40, 10), value) for number in range(4)}


def read(folder: Path) -> int:
    """The step that a checkpoint is of, all of it."""
    found = content(-1)
    load(found, checkpoint_id=folder)
    (value,) = {int(one) for tensor in found.values() for one in tensor.unique()}
    return value


def at_lines(do: Callable[[int], None]) -> None:
    """Has ``do`` called with the number of each line of what saves, in any thread."""
    lock, count = threading.Lock(), 0

    def line(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "line":
            with lock:
                count += 1
                do(count)
        return line

    def call(frame: Any, _event: str, _argument: Any) -> Any:
        return line if os.path.basename(frame.f_code.co_filename) in WATCHED else None

    threading.settrace(call)
    sys.settrace(call)


def saving(folder: Path, point: int) -> None:
    """Never returns. Tells the number of lines if it was not killed, and what was finished."""
    lines = 0

    def reach(number: int) -> None:
        nonlocal lines
        lines = number
        if number == point:
            os.kill(os.getpid(), signal.SIGKILL)

    values, told = content(1), folder / "told"
    async_save(values, checkpoint_id=folder / "same")
    assert maybe_finalize_async_calls(blocking=True) == [0]
    at_lines(reach)
    for one in values.values():
        one.fill_(2)
    indices = [async_save(values, checkpoint_id=folder / name) for name in ("same", "own")]
    for one in values.values():
        one.fill_(9)  # what is trained next is none of the save's business
    finished = maybe_finalize_async_calls(blocking=True)
    sys.settrace(None)
    assert (indices, finished) == ([1, 2], [1, 2])
    assert maybe_finalize_async_calls(blocking=True) == []
    told.write_text(str(lines))
    os._exit(0)


def killed_at(point: int) -> tuple[int, int]:
    """The steps that are left in both folders, 0 for none, and at point 0 the number of lines."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            try:
                saving(folder, point)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):  # of one that has fewer lines, as threads come, it is the end
            assert os.WEXITSTATUS(status) == 0
            lines = int((folder / "told").read_text())
            (folder / "told").unlink()
            if point == 0:
                return lines, 0
        else:
            assert os.WTERMSIG(status) == signal.SIGKILL
        same, own = read(folder / "same"), 0
        try:
            own = read(folder / "own")
        except CheckpointException as error:
            if f"there is no checkpoint of DCP in {folder / 'own'}" not in str(error):
                raise
        assert same in (1, 2), same
        assert own in (0, 2), own
        for place in ("same", "own"):  # where nothing that was left is in the way
            save(content(3), checkpoint_id=folder / place)
            assert read(folder / place) == 3
        assert sorted(os.listdir(folder)) == ["own", "same"]
        return same, own


def main() -> None:
    points = int(sys.argv[1])
    lines, _ = killed_at(0)
    found: Counter[str] = Counter()
    for number in range(points):
        same, own = killed_at(1 + number * (lines - 1) // (points - 1))
        found[f"{same}{own}"] += 1
    print(f"{lines} lines,", ", ".join(f"{key}: {found[key]}" for key in sorted(found)))


if __name__ == "__main__":
    main()
