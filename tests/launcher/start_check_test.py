# SPDX-License-Identifier: Apache-2.0
"""The check before the start: SM_LAUNCH_CHECK and `train --check`, under each runner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster import Cluster
from jobs import make_trees
from runners import SMDDP, TORCHRUN, needs_hosts, needs_mpirun, needs_torch, processes

from tests.free_port import free_port

pytestmark = [needs_torch, pytest.mark.usefixtures("warm_scripts")]

MPI = "sagemaker_mpi_enabled=true"
SCRIPT = """
    import os
    os.write(1, b"the script runs\\n")
"""
# 100 Mbit/s on a host that has this file in its /tmp.
SLOW = (
    "if [ -e /tmp/is-slow ]; then tc qdisc add dev eth0 root tbf rate 100mbit burst 64kb "
    "latency 100ms; fi"
)


def slow_second_host(folder: Path, *hyperparameters: str) -> Cluster:
    trees = make_trees(folder, SCRIPT, hosts=2, hyperparameter=[*hyperparameters, processes(1)])
    (folder / "tmp-algo-2").mkdir()
    (folder / "tmp-algo-2" / "is-slow").touch()
    return Cluster(folder, trees, prologue=SLOW)


def untagged(text: str) -> str:
    return re.sub(r"^\[1,mpirank:\d+,[\w-]+\]<std(?:out|err)>:", "", text, flags=re.MULTILINE)


@needs_mpirun
@pytest.mark.parametrize("runner", [[MPI], SMDDP, TORCHRUN], ids=["mpi", "smddp", "torchrun"])
def test_ranks_are_measured_before_the_script(folder, run, runner):
    [tree] = make_trees(folder, SCRIPT, hyperparameter=[*runner, processes(2)])

    result = run(tree, MASTER_PORT=free_port(), SM_LAUNCH_CHECK="1")

    assert result.code == 0, result.err
    said = untagged(result.out)
    assert said.count("Check before the start") == 1
    assert re.search(r"algo-1\s+2\s+\d+ CPUs\s+[\d.e+]+\s+\S+ GB/s, \d+ us\s+\d+ MiB", said), said
    assert said.index("Check before the start") < said.index("the script runs")


def test_a_plain_process_is_measured_by_itself(folder, run):
    [tree] = make_trees(folder, SCRIPT)

    result = run(tree, MASTER_PORT=free_port(), SM_LAUNCH_CHECK="1")

    assert result.code == 0, result.err
    assert re.search(r"algo-1\s+1\s+\d+ CPUs", result.out), result.out
    assert "the script runs" in result.out


def test_the_check_alone_runs_nothing_of_the_user(folder, run):
    [tree] = make_trees(folder, SCRIPT, files={"requirements.txt": "no-such-package-anywhere\n"})

    result = run(tree, "--check", MASTER_PORT=free_port())

    assert "Check before the start" in result.out
    assert "the script runs" not in result.out
    assert result.code == (1 if "Outlier" in result.out else 0), result.err


def test_without_torch_the_job_starts_unchecked(folder, run):
    [tree] = make_trees(folder, SCRIPT)

    result = run(
        tree, MASTER_PORT=free_port(), SM_LAUNCH_CHECK="1", SM_LAUNCH_PYTHON="/usr/bin/python3"
    )

    assert result.code == 0, result.err
    assert "SM_LAUNCH_CHECK has no effect: /usr/bin/python3 has no torch" in result.err
    assert "the script runs" in result.out


def test_a_value_that_is_none_is_refused(folder, run):
    [tree] = make_trees(folder, SCRIPT)

    result = run(tree, SM_LAUNCH_CHECK="maybe")

    assert result.code == 1
    assert 'SM_LAUNCH_CHECK is "maybe"' in tree.failure
    assert "strict" in tree.failure


@needs_hosts
def test_a_slow_host_is_told_and_the_job_goes_on(folder):
    with slow_second_host(folder, MPI) as hosts:
        results = hosts.run(SM_LAUNCH_CHECK="1")

    assert [result.code for result in results] == [0, 0], results[0].err
    said = untagged(results[0].out)
    assert re.search(r"^Outlier: algo-2: sends 0\.\d+ of 10 Gbit/s, the others ", said, re.M), said
    assert "Outlier: algo-1: sends" not in said
    assert "the script runs" in said


@needs_hosts
@pytest.mark.parametrize("runner", [[MPI], TORCHRUN], ids=["mpi", "torchrun"])
def test_a_slow_host_fails_a_job_that_is_to_fail(folder, runner):
    with slow_second_host(folder, *runner) as hosts:
        results = hosts.run(SM_LAUNCH_CHECK="strict")

    assert [result.code for result in results] == [1, 1], results[0].err
    for result in results:
        assert re.search(r"check before the start: .*algo-2: sends 0\.", result.tree.failure)
        assert "the script runs" not in result.out


@needs_hosts
@pytest.mark.parametrize("runner", [[MPI], []], ids=["mpi", "process"])
def test_the_check_alone_spans_hosts(folder, runner):
    with slow_second_host(folder, *runner) as hosts:
        results = hosts.run("--check")

    assert [result.code for result in results] == [1, 1], results[0].err
    assert "Outlier: algo-2: sends 0." in untagged(results[0].out)
