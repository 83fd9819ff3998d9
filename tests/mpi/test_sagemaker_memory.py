# SPDX-License-Identifier: Apache-2.0
"""Memory of a rank with SMP v2 is that of its shards, and in a step that of a few units more."""

from __future__ import annotations

from typing import Any

import pytest

WIDTH, LAYERS = 256, 8
LAYER = 4 * (WIDTH * WIDTH + WIDTH)  # [bytes]


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_a_rank_holds_its_shards_and_the_units_in_use(pool: Any, degree: int) -> None:
    shard = LAYERS * LAYER / degree
    # Values and two moments; in a step the shard's gradients, too, and of the unit in use and the
    # one fetched ahead values and gradients.
    rest = 3 * shard
    step = 4 * shard + (4 * LAYER if degree > 1 else 0)

    results = pool(4).run("sagemaker_memory_jobs:used", {}, {"hybrid_shard_degree": degree})

    for found in results:
        assert rest <= found["rest"] <= 1.1 * rest
        assert rest + shard <= found["highest"] <= 1.1 * step
