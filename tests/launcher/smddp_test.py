# SPDX-License-Identifier: Apache-2.0
"""Jobs that SMDDP starts, native DDP over it included."""

from __future__ import annotations

import signal

from cluster import Cluster
from jobs import make_trees
from runners import (
    ALL_REDUCE,
    ALL_REDUCE_SMDDP,
    RANK_NAMES,
    SMDDP,
    TELL_RANK,
    WAIT_FOR_STOP,
    library,
    needs_hosts,
    needs_mpirun,
    needs_torch,
    processes,
    told,
)

from tests.free_port import free_port


@needs_mpirun
def test_smddp_ranks_get_the_variables_that_its_scripts_read(folder, run):
    [tree] = make_trees(folder, TELL_RANK, hyperparameter=[*SMDDP, processes(3)])

    result = run(tree)

    assert result.code == 0, result.err
    assert [[one[name] for name in RANK_NAMES] for one in told(result)] == [
        [str(rank), str(rank), "3", "3"] for rank in range(3)
    ]
    for one in told(result):
        assert (one["host"], one["SM_CURRENT_HOST"]) == ("algo-1", "algo-1")
        assert one["MASTER_PORT"] == "7777"
        assert one["MASTER_ADDR"] in ("algo-1", "127.0.0.1")
    assert "Invoking SMDataParallel" in result.err
    assert "[1,mpirank:2,algo-1]<stdout>:told" in result.out


@needs_mpirun
@needs_torch
def test_native_ddp_over_smddp_trains(folder, run):
    [tree] = make_trees(
        folder,
        ALL_REDUCE,
        hyperparameter=["sagemaker_pytorch_ddp_enabled=true", processes(2)],
    )

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    for rank in range(2):
        assert f"[1,mpirank:{rank},algo-1]<stdout>:sum 3 rank {rank} algo-1\n" in result.out


@needs_mpirun
@needs_torch
def test_ranks_of_smddp_meet_over_its_own_backend(folder, run):
    [tree] = make_trees(folder, ALL_REDUCE_SMDDP, hyperparameter=[*SMDDP, processes(2)])

    result = run(tree, PYTHONPATH=str(library()), MASTER_PORT=free_port())

    assert result.code == 0, result.err
    for rank in range(2):
        assert f"[1,mpirank:{rank},algo-1]<stdout>:sum 3 rank {rank} algo-1\n" in result.out


@needs_mpirun
def test_a_stop_reaches_smddp_ranks(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP, hyperparameter=[*SMDDP, processes(2)])
    running = start(tree)
    running.wait_for_line("up", times=2)

    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0, result.err
    assert result.out.count("stopped") == 2


@needs_hosts
def test_smddp_runs_over_two_hosts_each_with_its_own_variables(folder):
    trees = make_trees(folder, TELL_RANK, hosts=2, hyperparameter=[*SMDDP, processes(2), "lr=0.1"])
    with Cluster(folder, trees) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    ranks = told(results[0])
    assert [[one[name] for name in RANK_NAMES] for one in ranks] == [
        ["0", "0", "4", "2"],
        ["1", "1", "4", "2"],
        ["2", "0", "4", "2"],
        ["3", "1", "4", "2"],
    ]
    assert [one["SM_CURRENT_HOST"] for one in ranks] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert [one["host"] for one in ranks] == [one["SM_CURRENT_HOST"] for one in ranks]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks} == {("algo-1", "7777")}
    assert all(result.tree.succeeded for result in results)
