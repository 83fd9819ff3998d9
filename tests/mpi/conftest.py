# SPDX-License-Identifier: Apache-2.0
"""Warm ranks, shared by all tests of a size."""

from collections.abc import Callable, Iterator

import pytest
from rank_pool import RankPool


@pytest.fixture(scope="session")
def pool() -> Iterator[Callable[[int], RankPool]]:
    """`pool(4)`: four ranks under mpirun, started by the first test that asks for them."""
    pools: dict[int, RankPool] = {}

    def of_size(size: int) -> RankPool:
        if size not in pools:
            pools[size] = RankPool(size)
        return pools[size]

    yield of_size
    for one in pools.values():
        one.dismiss()
    for one in pools.values():
        one.close()
