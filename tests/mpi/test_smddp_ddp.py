# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel and ZeroRedundancyOptimizer on smddp: bit by bit what one
process computes, and what they compute on gloo."""

from __future__ import annotations

import pytest
import torch
from jobs import ddp_jobs

DDP = {"ddp": True}
RANKS = 4


def assert_equal(ours, expected, where: object = "") -> None:
    """The same structure of the same bits."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(ours, torch.Tensor), where
        assert torch.equal(ours, expected), where
    elif isinstance(expected, dict):
        assert ours.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_equal(ours[key], value, (where, key))
    elif isinstance(expected, (list, tuple)):
        assert len(ours) == len(expected), where
        for number, value in enumerate(expected):
            assert_equal(ours[number], value, (where, number))
    else:
        assert ours == expected, where


def test_gradients_are_those_of_one_process_and_of_gloo(pool):
    names = list(ddp_jobs.CASES)

    results = pool(RANKS).run("ddp_jobs:gradients", DDP, names)

    for name in names:
        expected = ddp_jobs.alone(name, RANKS)
        for rank, found in enumerate(results):
            assert_equal(found[name]["smddp"], expected, (name, rank))
            assert_equal(found[name]["gloo"], expected, (name, rank, "gloo"))


def test_ranks_with_fewer_batches_join_the_others(pool):
    batches = [3, 1, 4, 2]

    results = pool(RANKS).run("ddp_jobs:unequal_inputs", DDP, batches)

    expected = ddp_jobs.unequal_inputs_alone(batches)
    for found in results:
        assert_equal(found["smddp"], expected)
        assert_equal(found["gloo"], expected)


def test_a_rank_without_batches_stops_all_where_that_is_asked_for(pool):
    for text in pool(RANKS).run("ddp_jobs:early_end", DDP):
        assert "exhausted" in text


def test_buffers_of_rank_0_go_to_all_before_each_forward(pool):
    results = pool(RANKS).run("ddp_jobs:normalized", DDP)

    expected = ddp_jobs.normalized_alone(RANKS)
    for rank, found in enumerate(results):
        assert_equal(found["smddp"], expected[rank], rank)
        assert_equal(found["gloo"], expected[rank], rank)


@pytest.mark.parametrize(("kind", "views"), [("RMSprop", False), ("AdamW", True)])
def test_zero_redundancy_optimizer_steps_as_on_gloo_and_as_one_optimizer(pool, kind, views):
    results = pool(RANKS).run("ddp_jobs:sharded_optimizer", DDP, kind, views)

    expected = ddp_jobs.sharded_optimizer_alone(kind, RANKS)
    for found in results:
        assert_equal(found["smddp"], found["gloo"])  # parameters, and on rank 0 the state of all
        parameters, _ = found["smddp"]
        torch.testing.assert_close(parameters, expected)  # element by element, in other memory
    _, state = results[0]["smddp"]
    assert len(state) == len(expected)


def test_models_that_differ_are_an_error_on_every_rank(pool):
    for text in pool(RANKS).run("ddp_jobs:other_models", DDP):
        assert "same number of parameters" in text or "DDP expects same model" in text, text
