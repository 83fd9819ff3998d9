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
