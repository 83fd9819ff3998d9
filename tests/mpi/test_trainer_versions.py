# SPDX-License-Identifier: Apache-2.0
"""SMPTrainer with other versions of Transformers, from PyPI: what their own Trainer gives in one
process. test_smp_trainer.py has the version of our locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from package_environments import environment_with
from rank_pool import RankPool
from test_smp_trainer import WAYS, assert_same

pytestmark = pytest.mark.long
ROUNDED = 1.1e-4  # losses in the log of Transformers 4


@pytest.fixture(scope="module", params=["4.57.6", "5.0.0"])
def version(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RankPool, dict[str, Any]]]:
    """Two ranks with this version, and what one process gives with it."""
    python = str(environment_with(f"transformers=={request.param}"))
    pool, one = RankPool(2, python=python), RankPool(1, python=python)
    try:
        assert pool.run("trainer_jobs:version", {}) == [request.param] * 2
        yield pool, one.run("trainer_jobs:alone", {}, str(tmp_path_factory.mktemp("alone")))[0]
    finally:
        pool.close()
        one.close()


@pytest.mark.parametrize("way", WAYS)
def test_it_trains_and_goes_on_as_one_process(
    version: tuple[RankPool, dict[str, Any]], tmp_path: Path, way: str
) -> None:
    pool, expected = version

    results = pool.run("trainer_jobs:train", WAYS[way], str(tmp_path))
    again = pool.run("trainer_jobs:resumed", WAYS[way], str(tmp_path), "checkpoint-3")

    assert_same(results[0], expected, ROUNDED)
    assert_same(again[0], expected, ROUNDED)
