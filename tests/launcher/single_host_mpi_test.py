# SPDX-License-Identifier: Apache-2.0
"""`train` with a real mpirun on one host."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
from jobs import WAIT_FOR_STOP, make_trees

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")


def test_mpi_ranks_run_with_tags_hosts_and_their_environment(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, socket
        from mpi4py import MPI
        total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
        print("sum", total, socket.gethostname(), os.environ["SM_CURRENT_HOST"],
              os.environ["MASTER_PORT"], os.environ["OMP_NUM_THREADS"])
        """,
        processes=4,
    )

    result = run(tree)

    assert result.code == 0, result.err
    threads = max(1, os.cpu_count() // 4)
    for rank in range(4):
        line = f"[1,mpirank:{rank},algo-1]<stdout>:sum 6 algo-1 algo-1 7777 {threads}\n"
        assert line in result.out
    assert "OMP_NUM_THREADS is not set" in result.err
    assert tree.succeeded


def test_an_exception_on_one_rank_ends_all_and_leads_the_failure_text(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, signal
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 3:
            raise ValueError("boom on three")
        signal.pause()
        """,
        processes=4,
    )
    started = time.monotonic()

    result = run(tree)

    print(f"ended after {time.monotonic() - started:.1f} s")
    assert result.code == 1
    assert 'ErrorMessage "rank 3 on algo-1: ValueError: boom on three' in tree.failure[:1024]
    assert "Traceback of rank 3 on algo-1:" in tree.failure


def test_a_killed_rank_ends_all(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, signal
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
        """,
        processes=2,
    )

    assert run(tree).code == 1
    assert "ExitCode 137" in tree.failure
    assert "process rank 1" in tree.failure


def test_an_exit_code_of_a_rank_is_reported(folder, run):
    [tree] = make_trees(folder, "raise SystemExit(7)", processes=2)

    assert run(tree, SM_LAUNCH_EXIT="propagate").code == 7
    assert "ExitCode 7" in tree.failure


def test_a_stop_reaches_every_rank_once_and_their_last_words_come_out(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP, processes=3)
    running = start(tree)
    running.wait_for_line("up", times=3)

    running.process.send_signal(signal.SIGTERM)
    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0, result.err
    assert sorted(line.split()[-1] for line in result.out.splitlines() if "stopped" in line) == [
        "0",
        "1",
        "2",
    ]
    assert tree.succeeded
