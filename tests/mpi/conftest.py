# SPDX-License-Identifier: Apache-2.0
"""Warm ranks, shared by all tests of a size, and what jobs find in their environment."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # rank_pool.py, launching.py: however pytest imports

from rank_pool import RankPool

HERE = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]).rstrip(":")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# btl/ofi, which no test needs, sleeps for a second when a rank ends.
os.environ.setdefault("OMPI_MCA_btl", "^openib,ofi")

# Tests that take longest, most of them jobs and models of their own: ci/test --all runs them,
# ci/test does not. Each part of the library is in what is left, too.
THOROUGH = {
    "test_assignments",
    "test_dcp",
    "test_determinism",
    "test_direct_exchange",
    "test_frameworks",
    "test_gpt2_tensor_parallel",
    "test_hugging_face",
    "test_kills",
    "test_measuring",
    "test_one_tensor_rank",
    "test_pretrained",
    "test_published",
    "test_published_v2",
    "test_ranks_and_objects",
    "test_real_models",
    "test_sagemaker_checkpoints",
    "test_sagemaker_tensor_parallel",
    "test_sharded_checkpoints",
    "test_sharding_hosts",
    "test_signals",
    "test_smp_trainer",
    "test_smddp",
    "test_smddp_hosts",
    "test_state_fit",
    "test_tensor_schedules",
    "test_tensor_state_checkpoints",
    "test_tensor_states",
    "test_todays_models",
    "test_torch_models",
    "test_trainer",
    "test_v2_conversions",
    "test_verdicts",
    "test_vit_sharded",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in THOROUGH:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session", autouse=True)
def start_warm(warm_interpreter: Path) -> None:
    """All ranks, unless a test says otherwise."""


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
