# SPDX-License-Identifier: Apache-2.0
"""Signals in the middle of steps do what they do in a process without this library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.free_port import free_port

JOB = Path(__file__).parent / "jobs" / "signalled_job.py"
LIMIT = 60  # [s]


def start(rank: int, port: str, folder: Path, way: str, handler: str) -> subprocess.Popen[str]:
    ranks = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, JOB, way, handler],
        env=os.environ | ranks,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("sent", "handler", "code", "said"),
    [
        (signal.SIGINT, "default", -signal.SIGINT, ["interrupted", "cleaned up"]),
        (signal.SIGTERM, "default", -signal.SIGTERM, []),
        (signal.SIGTERM, "own", 7, ["cleaned up"]),
    ],
    ids=["interrupt", "terminate", "own_handler"],
)
@pytest.mark.parametrize(("way", "victim"), [("smddp", 0), ("pipeline", 0), ("pipeline", 1)])
def test_a_signal_in_a_step_ends_the_rank_as_usual(
    way: str,
    victim: int,
    sent: signal.Signals,
    handler: str,
    code: int,
    said: list[str],
    tmp_path: Path,
) -> None:
    port = free_port()
    ranks = [start(rank, port, tmp_path, way, handler) for rank in range(2)]
    try:
        stdout = ranks[victim].stdout
        assert stdout is not None
        before = []
        for line in stdout:
            before.append(line)
            if line == "stepping\n":
                break
        assert before[-1:] == ["stepping\n"], before
        ranks[victim].send_signal(sent)
        text = ranks[victim].communicate(timeout=LIMIT)[0]
    finally:
        for process in ranks:
            process.kill()

    assert ranks[victim].returncode == code, text
    assert [line for line in text.splitlines() if line in ("interrupted", "cleaned up")] == said
