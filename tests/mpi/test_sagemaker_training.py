# SPDX-License-Identifier: Apache-2.0
"""Training by scripts of SMP v2: FSDP1 with the groups that the keys say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

Numbers = list[tuple[list[tuple[float, float]], dict[str, torch.Tensor]]]


def assert_equal(ours: Numbers, theirs: Numbers) -> None:
    for (numbers, values), (expected, whole) in zip(ours, theirs, strict=True):
        assert numbers == expected
        assert values.keys() == whole.keys()
        assert all(torch.equal(one, whole[name]) for name, one in values.items())


@pytest.mark.parametrize(
    ("ranks", "config", "asked", "strategy", "plain_degree"),
    [
        (2, {}, "FULL_SHARD", "FULL_SHARD", 0),
        (2, {"hybrid_shard_degree": 1}, "FULL_SHARD", "NO_SHARD", 0),
        (4, {}, "SHARD_GRAD_OP", "SHARD_GRAD_OP", 0),
        (4, {}, "HYBRID_SHARD", "HYBRID_SHARD", 4),  # PyTorch alone would count one device
        (4, {"hybrid_shard_degree": 2}, "FULL_SHARD", "HYBRID_SHARD", 2),
        (4, {"hybrid_shard_degree": 2}, "_HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2", 2),
        (4, {"hybrid_shard_degree": 4}, "HYBRID_SHARD", "HYBRID_SHARD", 4),
    ],
)
@pytest.mark.parametrize("orig_params", [True, False])
def test_numbers_are_those_of_plain_fsdp_to_the_bit(
    pool: Any,
    ranks: int,
    config: dict[str, int],
    asked: str,
    strategy: str,
    plain_degree: int,
    orig_params: bool,
) -> None:
    job = pool(ranks)

    ours = job.run("sagemaker_jobs:losses", {}, config, asked, orig_params=orig_params)

    assert_equal(
        ours,
        job.run("sagemaker_jobs:losses", {}, None, strategy, plain_degree, orig_params=orig_params),
    )


def test_all_degrees_learn_the_same_from_equal_data(pool: Any) -> None:
    job = pool(4)

    first, *others = (
        job.run(
            "sagemaker_jobs:losses", {}, {"hybrid_shard_degree": degree}, "FULL_SHARD",
            equal_data=True,
        )
        for degree in (0, 1, 2, 4)
    )  # fmt: skip

    for other in others:
        losses = [[loss for loss, _ in numbers] for numbers, _ in other]
        expected = [[loss for loss, _ in numbers] for numbers, _ in first]
        assert torch.tensor(losses).allclose(torch.tensor(expected), rtol=1e-5, atol=0)


def test_state_says_who_is_where(pool: Any) -> None:
    results = pool(4).run("sagemaker_jobs:ranks", {}, {"hybrid_shard_degree": 2})

    for rank, found in enumerate(results):
        assert found == {
            "rank": rank,
            "rep_rank": rank // 2,
            "rep_groups": [[0, 2], [1, 3]],
            "shard": [rank // 2 * 2, rank // 2 * 2 + 1],
            "tp": (1, 0),
        }


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hybrid_shard_degree": 3}, "does not divide the number of ranks, 4"),
        ({"expert_parallel_degree": 2}, "expert parallelism is not offered"),
        ({"context_parallel_degree": 2}, "context parallelism is not offered"),
        ({"partitions": 2}, "this is SMP v1: import smdistributed.modelparallel.torch"),
    ],
)
def test_what_cannot_be_is_refused_on_all_ranks(
    pool: Any, config: dict[str, int], words: str
) -> None:
    errors = pool(4).run("sagemaker_jobs:ranks", {}, config, fails=True)

    assert all(words in error for error in errors)


def test_parameters_of_16_bits_are_refused(pool: Any) -> None:
    errors = pool(2).run("sagemaker_jobs:half_precision", {}, fails=True)

    assert all("0.weight is of torch.bfloat16; expected torch.float32" in one for one in errors)


def test_an_optimizer_of_replaced_parameters_is_refused(pool: Any) -> None:
    refused, stepped = (
        pool(2).run("sagemaker_jobs:early_optimizer", {}, orig_params)
        for orig_params in (False, True)
    )

    assert all("make it after FullyShardedDataParallel" in error for error, _ in refused)
    assert all(error == "" and change > 0 for error, change in stepped)


@pytest.mark.parametrize("degree", [1, 2])
def test_replicas_that_differ_from_the_start_are_refused(pool: Any, degree: int) -> None:
    job, config = pool(4), {"hybrid_shard_degree": degree}

    errors = job.run("sagemaker_jobs:different_replicas", {}, config, False, fails=True)

    assert all("replicas of the model begin with different values" in one for one in errors)
    assert job.run("sagemaker_jobs:different_replicas", {}, config, True) == [True] * 4


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_delayed_models_get_values_and_buffers_when_fsdp_wraps_them(pool: Any, kind: str) -> None:
    results = pool(2).run("sagemaker_delayed_jobs:delayed", {}, kind)

    for one in results:
        assert one["buffers equal"]
        assert one["tied"] == (kind == "gpt2")
        assert one["loss"] == pytest.approx(one["eager loss"], rel=0.05)
        assert one["spread"] == pytest.approx(one["eager spread"], rel=0.2)


def test_nothing_stays_uninitialised_without_a_word(pool: Any) -> None:
    errors = pool(2).run("sagemaker_delayed_jobs:delayed_without_values", {}, fails=True)

    assert all("nothing has initialised 1.scale" in error for error in errors)
