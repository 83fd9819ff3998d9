# SPDX-License-Identifier: Apache-2.0
"""Distributed layers against one process: bit by bit where all numbers are integers."""

import pytest
import torch
from jobs import tensor_jobs


def config(degree: int, **others):
    return {"tensor_parallel_degree": degree, "ddp": True, "microbatches": 2, **others}


def assert_gradients(results, alone, factor):
    """Averages over replicas are 1 / `factor` of the sum that one process has."""
    for seen in results:
        for name, wanted in alone["gradients"].items():
            assert torch.equal(seen["gradients"][name] * factor, wanted), name


@pytest.mark.parametrize("optimize", ["memory", "speed"])
@pytest.mark.parametrize("prescaled", [False, True])
@pytest.mark.parametrize(("ranks", "degree"), [(2, 2), (4, 4), (4, 2)])
def test_linear_and_embedding_give_the_bits_of_one_process(
    pool, ranks, degree, prescaled, optimize
):
    settings = {"prescaled_batch": prescaled, "optimize": optimize}
    alone = tensor_jobs.alone(tensor_jobs.layers, config(1, **settings))

    results = pool(ranks).run("tensor_jobs:layers", config(degree, **settings))

    replicas = ranks // degree if prescaled else ranks
    assert_gradients(results, alone, replicas)
    seen = results[0]
    assert seen["axes"] == {
        "embedding.weight": 1, "split.weight": 1, "split.bias": None, "before.weight": None,
        "before.bias": None, "after.weight": None, "after.bias": None,
    }  # fmt: skip
    assert seen["scaled"] == ["embedding.weight", "split.weight"]
    assert len(seen["default"]) == 5


def assert_close(results, alone):
    """64 bits and sums of a few hundred numbers: 1e-10 leaves three digits for other orders."""
    seen = {}
    for result in results:
        assert torch.allclose(result["norm"], alone["norm"], rtol=1e-10, atol=0)
        assert torch.allclose(result["losses"], alone["losses"], rtol=1e-10, atol=0)
        for name, gradient in result["gradients"].items():
            seen[name] = gradient
            wanted = alone["gradients"][name]
            scale = wanted.abs().max().item()
            assert torch.allclose(gradient, wanted, rtol=0, atol=1e-10 * max(scale, 1e-3)), name
    assert seen.keys() == alone["gradients"].keys()


KINDS = list(tensor_jobs.KINDS)


@pytest.mark.parametrize("optimize", ["memory", "speed"])
@pytest.mark.parametrize(
    ("ranks", "degree", "prescaled"), [(2, 2, False), (4, 4, True), (4, 2, False), (4, 2, True)]
)
def test_language_models_learn_what_one_process_learns(pool, ranks, degree, prescaled, optimize):
    alone = tensor_jobs.alone(tensor_jobs.language_models, config(1, microbatches=1), KINDS)
    settings = {"prescaled_batch": prescaled, "optimize": optimize, "microbatches": 2}

    results = pool(ranks).run("tensor_jobs:language_models", config(degree, **settings), KINDS)

    assert_close(results, alone)


@pytest.mark.parametrize(("prescaled", "optimize"), [(True, "memory"), (False, "speed")])
def test_pipelines_of_tensor_parallel_stages_learn_the_same(pool, prescaled, optimize):
    kinds = ["gpt2", "bert", "decoder"]
    alone = tensor_jobs.alone(tensor_jobs.language_models, config(1, microbatches=1), kinds)
    settings = {"prescaled_batch": prescaled, "optimize": optimize, "partitions": 2}

    results = pool(8).run("tensor_jobs:language_models", config(2, **settings), kinds)

    assert_close(results, alone)


@pytest.mark.parametrize("optimize", ["memory", "speed"])
def test_recomputed_dropout_drops_the_same(pool, optimize):
    settings = config(2, optimize=optimize)
    kinds = ["gpt2", "bert"]

    kept = pool(2).run("tensor_jobs:language_models", settings, kinds, dropout=0.3)
    again = pool(2).run(
        "tensor_jobs:language_models", settings, kinds, dropout=0.3, checkpoint=True
    )
    without = pool(2).run("tensor_jobs:language_models", settings, kinds)

    for one, other in zip(kept, again, strict=True):
        assert torch.equal(one["losses"], other["losses"])
        for name, gradient in one["gradients"].items():
            assert torch.equal(gradient, other["gradients"][name]), name
    assert not torch.equal(kept[0]["losses"], without[0]["losses"])


def test_first_values_depend_on_no_seed_of_a_script_and_no_number_of_ranks(pool):
    alone = tensor_jobs.alone(tensor_jobs.first_values, config(1), 1.0)

    for values in pool(4).run("tensor_jobs:first_values", config(4), 2.0):
        assert values.keys() == alone.keys()
        for name, value in values.items():
            assert torch.equal(value, alone[name]), name


def test_ranks_drop_the_same_of_what_all_hold_and_their_own_of_slices(pool):
    results = pool(4).run("tensor_jobs:dropped", config(2), 0.5)

    for first, second in (results[:2], results[2:]):
        assert torch.equal(first["common"], second["common"])
        assert not torch.equal(first["own"], second["own"])
    assert not torch.equal(results[0]["common"], results[2]["common"]), "replicas drop their own"
    assert not torch.equal(results[0]["own"], results[0]["common"])
