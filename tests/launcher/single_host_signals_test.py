# SPDX-License-Identifier: Apache-2.0
"""Real signals to a `train` with one process, and what it leaves behind: nothing."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs import LIMIT, WAIT_FOR_STOP, job_environment, make_trees, train_binary


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_that_the_script_does_not_handle(folder, start, number):
    [tree] = make_trees(
        folder,
        """
        import signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("up", flush=True)
        signal.pause()
        """,
    )
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(number)

    assert running.finish().code == 128 + number
    assert f"asked to stop by {number.name}" in tree.failure


def test_a_script_that_handles_the_stop_succeeds(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP)
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0
    assert "stopped -" in result.out
    assert tree.succeeded
    assert not tree.failed


def test_a_script_that_ignores_the_stop_is_killed_in_time(folder, start):
    [tree] = make_trees(
        folder,
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        while True:
            signal.pause()
        """,
    )
    running = start(tree, SM_LAUNCH_STOP_SECONDS="1")
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGTERM)

    assert running.finish().code == 143
    assert "ExitCode -9" in tree.failure


def test_nohup_is_respected_and_an_ignored_sigchld_does_no_harm(folder):
    [tree] = make_trees(folder, "import os, signal; os.kill(os.getppid(), signal.SIGHUP); exit(0)")

    process = subprocess.run(
        [train_binary()],
        check=False,
        env=job_environment(SAGEMAKER_BASE_DIR=str(tree.base)),
        capture_output=True,
        timeout=LIMIT,
        preexec_fn=lambda: [
            signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGCHLD)
        ],
    )

    assert process.returncode == 0
    assert tree.succeeded


def test_user_signals_reach_the_script(folder, start):
    [tree] = make_trees(
        folder,
        """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda n, f: print("usr1", flush=True))
        signal.signal(signal.SIGUSR2, lambda n, f: sys.exit(0))
        print("up", flush=True)
        while True:
            time.sleep(0.1)
        """,
    )
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGUSR1)
    running.wait_for_line("usr1")
    running.process.send_signal(signal.SIGUSR2)

    assert running.finish().code == 0


def test_what_the_script_left_running_is_ended(folder, run):
    [tree] = make_trees(
        folder,
        """
        import subprocess
        child = subprocess.Popen(["setsid", "sleep", "1000"])
        print("left", child.pid)
        """,
    )

    result = run(tree)

    assert result.code == 0
    pid = int(result.out.split()[1])
    assert not Path(f"/proc/{pid}").exists()


def test_nothing_survives_the_launchers_own_death(folder, start):
    [tree] = make_trees(
        folder, "import os, signal; print('up', os.getpid(), flush=True); signal.pause()"
    )
    running = start(tree)
    running.wait_for_line("up")
    pid = int(running.seen[-1].split()[1])

    running.process.kill()
    running.process.wait()

    for _ in range(1000):  # the kernel kills it a moment later
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.01)
    pytest.fail("the script lives on")
