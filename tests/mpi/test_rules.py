# SPDX-License-Identifier: Apache-2.0
"""Rules of the interface that several ranks are needed to see."""

import pytest
import torch


def settings(**others):
    return {
        "partitions": 2,
        "microbatches": 2,
        "ddp": True,
        "auto_partition": False,
        "default_partition": 0,
        **others,
    }


@pytest.mark.parametrize(
    ("job", "what"),
    [
        ("send_a_lock", "an argument of module far cannot travel to partition 1"),
        ("return_a_lock", "the result of module far cannot travel to another partition"),
        (
            "give_a_lock_back",
            "the result of step give_back cannot travel to the other partitions, which return it "
            "too: cannot pickle '_thread.lock' object, at results[0]['kept'][1], the results",
        ),
    ],
)
def test_objects_that_cannot_be_pickled_are_refused_with_their_module(pool, job, what):
    errors = pool(2).run(f"rule_jobs:{job}", settings(), fails=True)

    for error in errors:
        assert what in error
        assert "cannot pickle '_thread.lock' object" in error


@pytest.mark.parametrize(("average", "factor"), [(True, 0.25), (False, 1.0)])
@pytest.mark.parametrize("partitions", [1, 2])
def test_gradients_are_averaged_or_summed_over_microbatches(pool, partitions, average, factor):
    results = pool(2 * partitions).run(
        "rule_jobs:gradient_of_a_step",
        settings(partitions=partitions, microbatches=4),
        average,
    )

    # Eight rows of ones and of twos: 8 and 16 in the replicas, 12 on average; behind the first
    # layer four times as much.
    expected = {"0.weight": 12.0 * factor, "1.weight": 48.0 * factor}
    for gradients in results:
        for name, gradient in gradients.items():
            assert torch.equal(gradient, torch.full_like(gradient, expected[name])), name
    assert {name for gradients in results for name in gradients} == set(expected)


def test_model_answers_what_is_where(pool):
    first, second = pool(2).run("rule_jobs:answers_of_the_model", settings())

    for rank in (first, second):
        assert rank["partitioned"] == (False, True)
        assert rank["moved"] and rank["same_names"] and rank["depth"]
        assert rank["called"] == [("partition", 2), ("step", 2)], "each hook once"
        assert rank["distributed"] == []
        assert rank["reduced"] == rank["parameters"]
    assert first["parameters"] == ["0.weight", "0.bias"]
    assert second["parameters"] == ["1.weight", "1.bias"]
    assert first["buffers"] == []
    assert second["buffers"] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert second["modules"] == ["1"]
    assert (first["counts"], second["counts"]) == ((2, 0), (2, 3))
    assert second["gathered"] == []
    assert first["gathered"] == sorted(
        ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
         "1.num_batches_tracked"]
    )  # fmt: skip


def test_remote_modules_see_the_contexts_of_the_step_and_not_those_of_microbatches(pool):
    results = pool(2).run("rule_jobs:contexts", settings())

    assert results[1] == ([("Latin", "none")] * 2, 2)
