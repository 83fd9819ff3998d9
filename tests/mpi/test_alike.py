# SPDX-License-Identifier: Apache-2.0
"""Ranks wrap one model and leave it as it is; replicas train on samples of their own."""

from __future__ import annotations

import re

import pytest

REPLICAS = {"ddp": True}
SHARDED = {"ddp": True, "sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0}


@pytest.mark.parametrize("settings", [REPLICAS, SHARDED, {"pipeline_parallel_degree": 2}])
def test_a_rank_that_builds_another_model_is_named_by_all(pool, settings):
    errors = pool(2).run("alike_jobs:other_model_on_rank_1", settings, fails=True)

    for error in errors:
        assert re.search(
            r"rank 1 built another model than rank 0: weight \(17, 8\) float32 there, "
            r"weight \(16, 8\) float32 on rank 0",
            error,
        ), error


def test_a_model_that_failed_does_not_judge_the_next_one(pool):
    pool(2).run("alike_jobs:train_after_a_model_that_failed", REPLICAS)


@pytest.mark.parametrize("settings", [REPLICAS, SHARDED])
def test_a_layer_that_is_replaced_after_wrapping_is_named(pool, settings):
    errors = pool(2).run("alike_jobs:layer_replaced", settings, fails=True)

    assert all("2 parameters (1.weight, 1.bias) of the model came, went" in e for e in errors)


def test_replicas_that_train_on_the_same_samples_are_told(pool):
    ranks = pool(2)

    ranks.run("alike_jobs:train_on", REPLICAS, True)
    before = ranks.log_text().count("is that of rank 0: replicas that train on the same samples")
    ranks.run("alike_jobs:train_on", REPLICAS, False)

    text = "the first batch of rank 1 is that of rank 0: replicas that train on the same samples"
    assert ranks.log_text().count(text) == before + 1
