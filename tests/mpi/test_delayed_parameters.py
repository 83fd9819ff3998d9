# SPDX-License-Identifier: Apache-2.0
"""Parameters that get their values on their owner have those of an eager model."""

import pytest
import torch
from jobs import delayed_jobs


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_delayed_parameters_are_those_of_an_eager_model(pool, ranks):
    settings = {"partitions": ranks, "microbatches": 2}
    expected = delayed_jobs.all_values(9)

    results = pool(ranks).run("delayed_jobs:delayed_state", settings, True)

    found = {}
    for was_delayed, parameters in results:
        assert was_delayed
        found.update(parameters)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_state_loaded_before_there_is_storage_arrives(pool):
    expected = delayed_jobs.all_values(77)

    results = pool(2).run("delayed_jobs:delayed_state", {"partitions": 2, "microbatches": 2}, True,
                          load=True)  # fmt: skip

    for _, parameters in results:
        for name, value in parameters.items():
            assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("settings", [{}, {"sdp_param_persistence_threshold": 0}, {"bf16": True}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_of_delayed_parameters_are_those_of_the_first_ranks_model(pool, ranks, settings):
    config = {"ddp": True, "sharded_data_parallel_degree": 2, **settings}
    expected = delayed_jobs.all_values(9)

    results = pool(ranks).run("delayed_jobs:sharded_state", config, [9, 77, 5, 6])

    for found in results:
        for name, value in expected.items():
            wanted = value.to(found[name].dtype)
            assert torch.equal(found[name], wanted), name


def test_whole_parameters_are_made_one_at_a_time_for_shards(pool):
    config = {"ddp": True, "sharded_data_parallel_degree": 4, "sdp_param_persistence_threshold": 0}
    layer = 4 * delayed_jobs.WIDE**2

    at_once = pool(4).run("delayed_jobs:memory_of_construction", config, False)
    one_by_one = pool(4).run("delayed_jobs:memory_of_construction", config, True)

    for grown, whole in at_once:
        assert grown > whole
    for grown, whole in one_by_one:
        # Shards and their gradients; a layer that is made, its unit in the store, a copy to send,
        # and as much again for code that was not used before.
        assert grown < 2 * whole / 4 + 6 * layer
