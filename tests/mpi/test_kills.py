# SPDX-License-Identifier: Apache-2.0
"""Ranks killed in the middle of training, with no launcher that would end the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

KILLS = 50 if os.environ.get("SMP_LONG_TESTS") == "1" else 5


def test_all_ranks_end_in_time_and_say_who_was_lost() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kill_ranks.py")), str(KILLS), "7"],
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "SMP_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=150 * KILLS,
        check=False,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == f"killed {KILLS} times"
