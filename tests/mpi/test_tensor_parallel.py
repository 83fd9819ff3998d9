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
