# SPDX-License-Identifier: Apache-2.0
"""Jobs that torchrun starts: ranks that meet, fail, are stopped."""

from __future__ import annotations

import signal
import textwrap
from pathlib import Path

import pytest
from cluster import Cluster
from jobs import make_trees
from runners import (
    ALL_REDUCE,
    RANK_NAMES,
    TELL_RANK,
    TORCHRUN,
    WAIT_FOR_STOP,
    needs_hosts,
    needs_torch,
    processes,
    told,
)

from tests.free_port import free_port


@needs_torch
def test_torchrun_starts_workers_that_meet_over_gloo(folder, run):
    [tree] = make_trees(folder, ALL_REDUCE, hyperparameter=[*TORCHRUN, processes(2)])

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    assert sorted(line for line in result.out.splitlines() if line.startswith("sum")) == [
        "sum 3 rank 0 algo-1",
        "sum 3 rank 1 algo-1",
    ]
    assert "Invoking TorchDistributed..." in result.err
    assert tree.succeeded


@needs_torch
def test_torchrun_workers_know_their_ranks_and_their_share_of_cpus(folder, run):
    [tree] = make_trees(folder, TELL_RANK, hyperparameter=[*TORCHRUN, processes(2)])
    port = free_port()

    ranks = told(run(tree, MASTER_PORT=port, OMP_NUM_THREADS="3"))

    assert [[one[name] for name in RANK_NAMES] for one in ranks] == [
        ["0", "0", "2", "2"],
        ["1", "1", "2", "2"],
    ]
    for one in ranks:
        assert one["MASTER_PORT"] == port
        assert one["OMP_NUM_THREADS"] == "3"
        assert one["host"] == "algo-1"


@needs_torch
@pytest.mark.parametrize("by", ["hyperparameter", "variable"])
def test_torchrun_starts_a_module_by_its_name(folder, run, by):
    chosen = TORCHRUN if by == "hyperparameter" else []
    [tree] = make_trees(folder, "", hyperparameter=[processes(2), *chosen])
    package = tree.base / "code" / "recipes"
    package.mkdir()
    (package / "tell.py").write_text(textwrap.dedent(TELL_RANK))
    variables = {"SM_LAUNCH_RUNNER": "torchrun"} if by == "variable" else {}

    result = run(tree, MASTER_PORT=free_port(), SAGEMAKER_PROGRAM="-m recipes.tell", **variables)

    ranks = told(result)

    assert [one["RANK"] for one in ranks] == ["0", "1"]


@needs_torch
@pytest.mark.parametrize("native", ["true", "false"])
def test_torchrun_that_fails_fails_the_job_with_the_workers_error(folder, run, native):
    """The reference never looks at its exit code when the native launcher is asked for."""
    script = """
        import os, signal
        if os.environ["RANK"] == "1":
            raise ValueError("boom on one")
        signal.pause()
    """
    switch = f"sagemaker_toolkit_native_launcher_enabled={native}"
    [tree] = make_trees(folder, script, hyperparameter=[*TORCHRUN, processes(2), switch])

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 1
    assert "ValueError: boom on one" in tree.failure[:1024]
    assert not tree.succeeded


@needs_torch
def test_a_stop_reaches_torchruns_workers_and_their_good_end_is_the_jobs(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP, hyperparameter=[*TORCHRUN, processes(2)])
    running = start(tree, MASTER_PORT=free_port())
    running.wait_for_line("up", times=2)

    running.process.send_signal(signal.SIGTERM)
    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0, result.err
    assert sorted(line for line in result.out.splitlines() if "stopped" in line) == [
        "stopped 0",
        "stopped 1",
    ]
    assert tree.succeeded


@needs_torch
def test_torchruns_workers_that_ignore_the_stop_are_killed_in_time(folder, start):
    script = """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, f"up {os.getpid()}\\n".encode())
        while True:
            signal.pause()
    """
    [tree] = make_trees(folder, script, hyperparameter=[*TORCHRUN, processes(2)])
    running = start(tree, MASTER_PORT=free_port(), SM_LAUNCH_STOP_SECONDS="2")
    running.wait_for_line("up", times=2)
    workers = [line.split()[1] for line in running.seen if line.startswith("up")]

    running.process.send_signal(signal.SIGTERM)

    assert running.finish().code == 143
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []


@needs_torch
def test_torchrun_is_refused_for_packages_before_anything_starts(folder, run):
    [tree] = make_trees(
        folder, "", hyperparameter=[*TORCHRUN, processes(1)], files={"setup.py": ""}
    )

    assert run(tree).code == 1
    assert tree.failure.startswith("Python packages are not supported for torch_distributed.")


@needs_torch
@needs_hosts
@pytest.mark.parametrize("subnet", ["10.77.0", "fd77:"])
def test_torchrun_workers_of_two_hosts_meet_over_gloo(folder, subnet):
    trees = make_trees(folder, ALL_REDUCE, hosts=2, hyperparameter=[*TORCHRUN, processes(2)])
    with Cluster(folder, trees, subnet=subnet) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for host, ranks in ((0, (0, 1)), (1, (2, 3))):
        lines = sorted(line for line in results[host].out.splitlines() if line.startswith("sum"))
        assert lines == [f"sum 10 rank {rank} algo-{host + 1}" for rank in ranks]
    assert all(result.tree.succeeded for result in results)
