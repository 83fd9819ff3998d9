# SPDX-License-Identifier: Apache-2.0
"""Saves of SMP v2 beside training: there when they are finished, whole, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_save_is_what_the_tensors_were_and_there_when_all_have_written(
    pool: Any, tmp_path: Path, ranks: int
) -> None:
    results = pool(ranks).run("sagemaker_queue_jobs:late", {}, str(tmp_path))

    for rank, found in enumerate(results):
        assert found == {
            "index": 0,
            "early": [],
            "was there": False,
            "done": [0],
            "value": 1.0,
            "coordinators": [rank == 0],
            "left": 0,
        }


def test_a_save_that_fails_on_one_rank_fails_on_all_and_leaves_the_one_before(
    pool: Any, tmp_path: Path
) -> None:
    results = pool(2).run("sagemaker_queue_jobs:failing", {}, str(tmp_path))

    for found in results:
        assert "disk is full" in found["error"]
        assert "1" in found["error"]  # the rank
        assert found["before"] == 1.0
        # The second save goes where the first one does, which is finished before it begins.
        assert (found["indices"], found["done"], found["after"]) == ([1, 2], [1, 2], 4.0)


def test_coordinators_are_ranks_of_the_job(pool: Any, tmp_path: Path) -> None:
    results = pool(4).run("sagemaker_queue_jobs:by_group", {}, str(tmp_path))

    assert results == [(0.0, True), (0.0, True), (1.0, True), (1.0, True)]
