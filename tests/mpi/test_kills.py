# SPDX-License-Identifier: Apache-2.0
"""Ranks killed in the middle of training, and of saving, with no launcher that would end the
others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
KILLS = 50 if LONG else 5
KILLED_SAVES = {"sharded": 200 if LONG else 20, "pipeline": 50 if LONG else 5}


def run_killer(script: str, times: int, seconds_each: float, *more: str) -> str:
    """The last line that it prints."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), str(times), "7", *more],
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "SMP_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds_each * times,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()[-1]


def test_all_ranks_end_in_time_and_say_who_was_lost() -> None:
    assert run_killer("kill_ranks.py", KILLS, 150) == f"killed {KILLS} times"


@pytest.mark.parametrize(("layout", "times"), KILLED_SAVES.items())
def test_a_checkpoint_of_parts_is_whole_whenever_its_ranks_are_killed(
    layout: str, times: int
) -> None:
    last = run_killer("kill_saves.py", times, 120, layout)

    assert last.startswith(f"killed {times} times, ")
