# SPDX-License-Identifier: Apache-2.0
"""Finds the line of the user's script that made a call of the library."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import torch

_OURS = str(Path(__file__).parents[2])
_TORCHS = str(Path(torch.__file__).parent)


def script_line() -> str:
    """File and line of the innermost frame of the main thread that is neither ours nor torch's;
    empty if there is none. May be called from any thread."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, _TORCHS, "<")):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
