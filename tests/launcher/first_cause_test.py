# SPDX-License-Identifier: Apache-2.0
"""The failure of a job in which one rank fails and the others lose it is that rank's."""

from __future__ import annotations

import cluster
import pytest
from cluster import Cluster
from jobs import make_trees
from runners import library, needs_mpirun, needs_torch, processes

from tests.free_port import free_port

# Rank 1 fails in its second step, in the way that the job's hyperparameter `how` says.
FAILS_ON_RANK_1 = """
    import argparse, sys
    import torch, torch.nn as nn
    import smdistributed.modelparallel.torch as smp

    parser = argparse.ArgumentParser()
    parser.add_argument("--how")
    how = parser.parse_known_args()[0].how
    smp.init()

    class Layer(nn.Linear):
        calls = 0
        def forward(self, batch):
            Layer.calls += how == "module" and smp.rank() == 1
            if Layer.calls == 3:
                try:
                    {}["rate"]
                except KeyError as error:
                    raise ValueError("boom") from error
            return super().forward(batch)

    model = smp.DistributedModel(nn.Sequential(*(Layer(8, 8) for _ in range(4))))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def train(batch):
        loss = model(batch).pow(2).mean()
        model.backward(loss)
        return loss

    for step in range(50):
        optimizer.zero_grad()
        train(torch.ones(4, 8))
        optimizer.step()
        if step == 1 and smp.rank() == 1 and how == "script":
            raise ValueError("boom")
        if step == 1 and smp.rank() == 1 and how == "exit":
            sys.exit(3)
"""
pytestmark = pytest.mark.usefixtures("warm_scripts")
PIPELINE = '{"pipeline_parallel_degree": 2, "microbatches": 2}'
SHARDED = '{"ddp": true, "sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0}'
REPLICAS = '{"ddp": true}'


def message_of(result):
    return result.tree.failure.split('ErrorMessage "')[1].split("Command")[0]


def job(folder, how, settings):
    [tree] = make_trees(
        folder,
        FAILS_ON_RANK_1,
        hyperparameter=[
            "sagemaker_mpi_enabled=true",
            processes(2),
            f"how={how}",
            f"mp_parameters={settings}",
        ],
    )
    return tree


@needs_mpirun
@needs_torch
@pytest.mark.parametrize(
    ("how", "settings"),
    [
        pytest.param("module", PIPELINE, id="a module of a pipeline"),
        pytest.param("script", PIPELINE, id="between the steps of a pipeline"),
        pytest.param("script", SHARDED, id="between sharded steps"),
        pytest.param("script", REPLICAS, id="between the steps of replicas"),
    ],
)
def test_the_rank_that_raised_is_named_with_its_error(folder, run, how, settings):
    result = run(
        job(folder, how, settings),
        PYTHONPATH=str(library()),
        MASTER_PORT=free_port(),
    )

    assert result.code == 1
    message = message_of(result)
    cause = "KeyError: 'rate'\nled to " if how == "module" else ""
    assert message.startswith(f"rank 1 on algo-1: {cause}ValueError: boom\n"), result.tree.failure


@needs_mpirun
@needs_torch
@pytest.mark.parametrize("settings", [PIPELINE, SHARDED, REPLICAS])
def test_the_exit_code_of_the_rank_that_left_is_the_jobs(folder, run, settings):
    result = run(
        job(folder, "exit", settings),
        PYTHONPATH=str(library()),
        MASTER_PORT=free_port(),
        SM_LAUNCH_EXIT="propagate",
    )

    assert result.code == 3, result.err
    assert "ExitCode 3" in result.tree.failure


@needs_torch
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
@pytest.mark.parametrize("settings", [PIPELINE, SHARDED])
def test_on_another_host_too(folder, settings):
    hyperparameters = ["how=script", f"mp_parameters={settings}"]
    trees = make_trees(
        folder, FAILS_ON_RANK_1, hosts=2, processes=1, hyperparameter=hyperparameters
    )
    with Cluster(folder, trees) as hosts:
        results = hosts.run(PYTHONPATH=str(library()))

    assert [result.code for result in results] == [1, 1]
    for result in results:
        assert message_of(result).startswith("rank 1 on algo-2: ValueError: boom\n")
