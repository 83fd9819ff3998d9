# SPDX-License-Identifier: Apache-2.0
"""The two hops of sharded gradients: the second beside the last backward, and right whatever
comes."""

import pytest
import torch
from jobs import hop_jobs, sharding_jobs

BASE = {"ddp": True, "sharded_data_parallel_degree": 2, "microbatches": 2,
        **sharding_jobs.ALL_SHARDED, **sharding_jobs.NO_CLIP, **hop_jobs.SMALL_BUCKETS}  # fmt: skip


def assert_same(results, expected):
    for state in results:
        for name, value in expected.items():
            assert torch.equal(state[name], value), name


def test_second_hop_runs_beside_the_last_backward_alone(pool):
    steps, passes = 4, 2

    results = pool(4).run("hop_jobs:watch_second_hop", BASE, steps, passes)

    for seen, whole in results:
        last = [2 * passes - 1, 4 * passes - 1]  # numbers of backwards, two a step
        early = [number for number, sent in enumerate(seen) if sent > 0]
        assert early == last
        assert [step for step, sent in enumerate(whole) if sent > 0] == [1, 3]
        # All but the first layer and the block before it, which were not reduced yet.
        assert all(seen[number] > whole[1] / 3 for number in last)


@pytest.mark.parametrize("settings", [{}, {"sdp_param_persistence_threshold": 7}], ids=str)
def test_more_backwards_than_expected_count(pool, settings):
    config = {**BASE, **settings, "microbatches": 1}

    results = pool(4).run("hop_jobs:several_backwards", config, 3, 2)

    assert_same(results, hop_jobs.several_backwards_alone(3, 4, 1))


def test_replicas_may_run_other_modules_than_each_other(pool):
    begins = [0, 1, 2, 0]

    results = pool(4).run("hop_jobs:replicas_that_choose", BASE, begins)

    assert_same(results, hop_jobs.replicas_that_choose_alone(begins, 4, 2, 2))
