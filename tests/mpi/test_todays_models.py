# SPDX-License-Identifier: Apache-2.0
"""Models of today in a pipeline, split over tensor ranks and sharded: five updates are those of one
process."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

pytest.importorskip("transformers", reason="the models are of transformers")

from jobs import todays_models

WAYS = {
    "pipeline": {"partitions": 2, "microbatches": 4, "ddp": True},
    "tensor": {"tensor_parallel_degree": 2, "microbatches": 2, "ddp": True, "_match_weights": True},
    "sharded": {
        "sharded_data_parallel_degree": 2,
        "sdp_param_persistence_threshold": 20,
        "sdp_gradient_clipping": 0,
        "ddp": True,
    },
}
SPEED = {**WAYS["tensor"], "optimize": "speed", "prescaled_batch": True}


@functools.cache
def alone(kind):
    return todays_models.train_alone(kind)


def assert_same(results, kind):
    """Transformers computes some norms, angles and scores in 32 bits: rounded by 6e-8 of values
    about 1, which five updates make larger."""
    expected = alone(kind)
    for seen in results:
        torch.testing.assert_close(
            torch.tensor(seen["losses"]), torch.tensor(expected["losses"]), rtol=0, atol=2e-6
        )
        assert seen["state"].keys() == expected["state"].keys()
        for name, value in expected["state"].items():
            torch.testing.assert_close(
                seen["state"][name], value, rtol=0, atol=2e-5,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip
    before = todays_models.made(kind).state_dict()
    moved = [name for name, value in expected["state"].items() if (value - before[name]).any()]
    assert len(moved) > len(before) / 2, "little is learned"


@pytest.mark.parametrize(("kind", "way"), list(itertools.product(todays_models.KINDS, WAYS)))
def test_a_model_learns_what_one_process_learns(pool, kind, way):
    results = pool(2).run("todays_models:train", WAYS[way], kind)

    assert_same(results, kind)
    if way == "pipeline":
        assert all(seen["here"] for seen in results), "a partition is without parameters"
    if way == "tensor":
        whole = "DistributedTransformerLMHead" in results[0]["distributed"]
        assert whole == (kind in todays_models.DISTRIBUTED), results[0]["distributed"]
        assert results[0]["distributed"], "nothing is split"


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma", "gptneox"])
def test_whole_activations_and_prescaled_batches_give_the_same(pool, kind):
    results = pool(2).run("todays_models:train", SPEED, kind)

    assert_same(results, kind)


@pytest.mark.parametrize("kind", todays_models.DISTRIBUTED)
def test_state_dicts_are_translated_both_ways(pool, kind):
    assert pool(2).run("todays_models:translated", WAYS["tensor"], kind) == [True, True]
