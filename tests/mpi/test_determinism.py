# SPDX-License-Identifier: Apache-2.0
"""Under deterministic_server two runs are one: in their bits, and in the order of all work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rank_pool import RankPool
from timelines import spans_in

RANKS, STEPS, ROWS, RUNS = 4, 4, 24, 3


def orders_in(file: Path) -> dict[int, list[tuple[int, int, str, str]]]:
    """Requests that each rank works on, in order: step, microbatch, phase and module. Deferred work
    is none of a request, and comes when a rank would wait."""
    found: dict[int, list[tuple[int, int, str, str]]] = {rank: [] for rank in range(RANKS)}
    for rank, span in spans_in(file):
        place = span["args"]
        if span["cat"] in ("forward", "backward") and place["microbatch"] >= 0:
            found[rank].append((place["step"], place["microbatch"], span["cat"], span["name"]))
    return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RankPool, Path]]:
    """Ranks, and the folder in which they write down what they do."""
    folder = tmp_path_factory.mktemp("trace")
    ranks = RankPool(RANKS, {"SMP_TRACE": str(folder)})
    yield ranks, folder
    ranks.close()


@pytest.mark.parametrize("schedule", ["simple", "interleaved", "zero_bubble"])
def test_ranks_of_a_partition_work_in_one_order_in_all_replicas_and_runs(traced, schedule):
    ranks, folder = traced
    settings = {
        "partitions": 2,
        "ddp": True,
        "microbatches": 6,
        "active_microbatches": 4,
        "pipeline": schedule,
        "auto_partition": False,
        "default_partition": 0,
        "deterministic_server": True,
    }
    runs = []
    for seed in range(RUNS):
        results = ranks.run("determinism_jobs:train_late", settings, STEPS, ROWS, seed)
        (file,) = folder.iterdir()
        runs.append((results, orders_in(file)))

    bits = runs[0][0][0][0]
    orders: dict[int, list[tuple[int, int, str, str]]] = {}  # by partition
    for results, found in runs:
        for rank, (state, partition) in enumerate(results):
            assert all(torch.equal(state[name], value) for name, value in bits.items())
            expected = orders.setdefault(partition, found[rank])
            assert found[rank] == expected, f"rank {rank} of partition {partition}"
    assert len(orders) == 2
    for order in orders.values():
        microbatches = [[run[1] for run in order if run[0] == step + 1] for step in range(STEPS)]
        recorded, planned, *later = microbatches
        assert recorded == sorted(recorded) != planned, "only the first runs one by one"
        assert later == [planned] * (STEPS - 2)
