# SPDX-License-Identifier: Apache-2.0
"""A job that is killed while it saves beside training leaves a whole checkpoint, and nothing that
is taken for one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
POINTS = 50 if LONG else 8


def test_whole_checkpoints_are_left_at_any_point_of_a_save() -> None:
    script = Path(__file__).with_name("kill_async_saves.py")

    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(POINTS)],
        capture_output=True, text=True, timeout=60 + 10 * POINTS, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    lines, *kills = done.stdout.replace(" lines", "").strip().split(", ")
    counts = {one.split(": ")[0]: int(one.split(": ")[1]) for one in kills}
    assert int(lines) > POINTS
    assert sum(counts.values()) == POINTS
    # Some left step 1, and nothing in the folder of step 2; some left step 2.
    assert counts["10"] > 0
    assert counts.get("20", 0) + counts.get("22", 0) > 0
