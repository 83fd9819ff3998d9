# SPDX-License-Identifier: Apache-2.0
"""All that smddp and gloo both know, on random data, on one host: the same bits."""

from __future__ import annotations

import os

import pytest

DDP = {"ddp": True}
LONG = os.environ.get("SMP_LONG_TESTS") == "1"
CALLS = {
    *("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "broadcast", "gather"),
    *("all_gather", "all_gather_into_tensor", "scatter", "all_to_all", "all_to_all_single"),
    *("around", "objects"),
}
KINDS = {
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("int8", "uint8", "int16", "int32", "int64", "bool"),
}
ROUNDS = len(CALLS) * len(KINDS)  # each call on each type


@pytest.mark.parametrize("seed", range(30) if LONG else range(2))
def test_random_calls_give_what_gloo_gives(pool, seed):
    results = pool(4).run("gloo_jobs:compare", DDP, seed, ROUNDS)

    assert set().union(*results) == {(call, kind) for call in CALLS for kind in KINDS}


@pytest.mark.parametrize("seed", range(10) if LONG else range(1))
def test_four_groups_at_once_give_what_gloo_gives(pool, seed):
    pool(4).run("gloo_jobs:in_four_groups_at_once", DDP, seed, 8)
