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
    for seen in results:
        share, shares = seen["share"]
        assert torch.equal(seen["output"], alone["output"].chunk(shares)[share])
    seen = results[0]
    assert seen["axes"] == {
        "embedding.weight": 1, "split.weight": 1, "split.bias": None, "before.weight": None,
        "before.bias": None, "after.weight": None, "after.bias": None,
    }  # fmt: skip
    assert seen["scaled"] == ["embedding.weight", "split.weight"]
    assert len(seen["default"]) == 5


@pytest.mark.parametrize("prescaled", [False, True])
@pytest.mark.parametrize(("ranks", "degree"), [(2, 2), (4, 4), (4, 2)])
def test_outputs_of_layers_are_those_of_plain_ones_bit_by_bit(pool, ranks, degree, prescaled):
    settings = config(degree, prescaled_batch=prescaled)

    for pairs in pool(ranks).run("tensor_jobs:outputs_of_layers", settings):
        assert len(pairs) == 15
        for what, (ours, plain) in pairs.items():
            assert torch.equal(ours, plain), what


def test_an_embedding_gives_slices_where_asked_to(pool):
    for seen in pool(4).run("tensor_jobs:slices_of_an_embedding", config(4)):
        assert torch.equal(seen["ours"], seen["plain"])


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


# Recomputed activations: blocks by set_activation_checkpointing, attention by the setting.
RECOMPUTED = [(True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("optimize", "partitions"), [("memory", 1), ("speed", 1), ("memory", 2)])
def test_recomputed_dropout_drops_the_same(pool, optimize, partitions):
    ranks, kinds, job = 2 * partitions, ["gpt2", "bert", "flash"], "tensor_jobs:language_models"
    settings = config(2, optimize=optimize, partitions=partitions)

    kept = pool(ranks).run(job, settings, kinds, dropout=0.3)
    without = pool(ranks).run(job, settings, kinds)

    assert not torch.equal(kept[0]["losses"], without[0]["losses"])
    for blocks, attentions in RECOMPUTED:
        how = {**settings, "checkpoint_attentions": attentions}
        again = pool(ranks).run(job, how, kinds, dropout=0.3, checkpoint=blocks)
        for one, other in zip(kept, again, strict=True):
            assert torch.equal(one["losses"], other["losses"])
            for name, gradient in one["gradients"].items():
                assert torch.equal(gradient, other["gradients"][name]), name
            layers, contexts = other["scores"]
            forwards = one["scores"][0]
            assert one["scores"] == (forwards, forwards)
            assert (layers, contexts) == (forwards * (2 if blocks else 1), 2 * forwards), "once"
    assert sum(seen["scores"][0] for seen in kept) == 2 * len(kinds) * 2 * 2 * 2


@pytest.mark.parametrize("optimize", ["memory", "speed"])
def test_residuals_added_in_32_bits_are_those_of_one_process(pool, optimize):
    kinds, job = ["gpt2", "bert"], tensor_jobs.language_models
    plain = tensor_jobs.alone(job, config(1, microbatches=1), kinds)

    def in_32_bits():
        return job(kinds, fp32_residual_addition=True)

    alone = tensor_jobs.alone(in_32_bits, config(1, microbatches=1))
    settings = config(4, optimize=optimize)
    results = pool(4).run(
        "tensor_jobs:language_models", settings, kinds, fp32_residual_addition=True
    )

    assert not torch.equal(alone["losses"], plain["losses"]), "64 bits are rounded to 32"
    for seen in results:  # values of some units, rounded by 2^-24 of them in a dozen places
        torch.testing.assert_close(seen["losses"], alone["losses"], rtol=0, atol=1e-5)
        for name, gradient in seen["gradients"].items():
            torch.testing.assert_close(gradient, alone["gradients"][name], rtol=0, atol=1e-4)


@pytest.mark.parametrize("fused", ["FusedLAMB", "FusedNovoGrad"])
def test_norms_of_optimizers_are_those_of_whole_parameters(pool, fused):
    job, kinds = tensor_jobs.language_models, ["gpt2"]

    def stepped():
        return job(kinds, steps=3, fused=fused)

    alone = tensor_jobs.alone(stepped, config(1, microbatches=1))
    results = pool(4).run(
        "tensor_jobs:language_models", config(2, optimize="speed"), kinds, steps=3, fused=fused
    )

    assert_close(results, alone)


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
