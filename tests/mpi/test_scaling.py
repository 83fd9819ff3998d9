# SPDX-License-Identifier: Apache-2.0
"""Loss scaling and fused optimizers: one model, whatever its partitions."""

import pytest
import torch


def config(partitions: int):
    return {"partitions": partitions, "microbatches": 2, "auto_partition": False,
            "default_partition": 0}  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2])
def test_scale_is_the_same_on_all_partitions(pool, ranks):
    spoiler = ranks - 1  # the partition that does not run the step's function

    results = pool(ranks).run(
        "scaling_jobs:scale_losses", config(ranks), bad_steps=[1, 4], steps=6, spoil_rank=spoiler
    )

    for scales, moved, state in results:
        # Halved by an overflow, doubled after two good steps.
        assert scales == [64, 32, 32, 64, 32, 32]
        assert moved == [True, False, True, True, False, True]
        assert state == results[0][2]


def test_rank_without_parameters_scales_along(pool):
    results = pool(4).run(
        "scaling_jobs:scale_losses", config(4), bad_steps=[0], steps=2, spoil_rank=3
    )

    assert [scales for scales, *_ in results] == [[32, 32]] * 4
    assert [moved for _, moved, _ in results] == [
        [False, True],
        [False, False],
        [False, False],
        [False, True],
    ]


@pytest.mark.parametrize("name", ["FusedAdam", "FusedLAMB", "FusedNovoGrad"])
def test_fused_optimizers_are_the_same_over_partitions(pool, name):
    ((expected, _),) = pool(1).run("scaling_jobs:train_with", config(1), name, 4, False)

    for state, steps in pool(2).run("scaling_jobs:train_with", config(2), name, 4, True):
        assert steps == [4]
        for key, value in expected.items():
            # LAMB's norm over partitions adds squares in another order.
            torch.testing.assert_close(state[key], value, rtol=1e-6, atol=1e-7)
