# SPDX-License-Identifier: Apache-2.0
"""Results of remote modules that go straight to the next one: the same numbers, fewer bytes."""

import os

import pytest
import torch
from jobs.direct_jobs import LAYERS, MICROBATCHES, ROWS, STEPS, WIDTH, Loop, batches, train_alone

CONFIG = {
    "partitions": 4,
    "microbatches": MICROBATCHES,
    "auto_partition": False,
    "default_partition": 0,
}
HABITS = [
    "none",
    "residual",
    "sometimes",
    "in_place",
    "two_users",
    "hook",
    "kept_gradient",
    "without_gradient",
    "all_states",
    "kept",
]


@pytest.mark.parametrize("schedule", ["simple", "interleaved", "zero_bubble"])
@pytest.mark.parametrize("habit", HABITS)
def test_whatever_is_done_with_results_gives_the_bits_of_one_process(pool, habit, schedule):
    results = pool(4).run(
        "direct_jobs:train",
        {**CONFIG, "pipeline": schedule, "deterministic_server": True},
        habit,
    )

    losses, gradients, looks = train_alone(habit)
    for own_losses, own_gradients, _, _ in results:
        assert own_losses == losses
        for name, gradient in own_gradients.items():
            assert torch.equal(gradient, gradients[name]), name
    assert sum(len(own) for _, own, _, _ in results) == 2 * LAYERS
    assert results[0][2] == looks


def test_a_loop_over_layers_sends_each_result_once(pool):
    results = pool(4).run("direct_jobs:train", CONFIG, "none")

    sent = results[0][3]
    assert len(sent) == STEPS
    # Straight, a result goes once over each of three boundaries and to the caller, and its gradient
    # back; over the caller, two ways for each of six remote layers. Within the first step ranks
    # learn the straight ways, sooner or later.
    result = ROWS * WIDTH * 8 * MICROBATCHES
    assert 8 * result < sent[3] == sent[2] <= sent[1] < 8 * result * 1.02
    assert sent[1] < sent[0] < 24 * result * 1.02


def test_results_without_gradients_go_straight_too(pool):
    results = pool(4).run("direct_jobs:evaluate", CONFIG)

    module = Loop("none").double()
    with torch.no_grad():
        expected = [module(batch) for batch in batches()]
    for own in results:
        for ours, theirs in zip(own, expected, strict=True):
            assert torch.equal(ours, theirs)


def test_a_failure_behind_a_remote_tensor_reaches_all_ranks_and_the_next_step_works(pool):
    results = pool(4).run("direct_jobs:fail_behind_a_remote_tensor", CONFIG)

    assert len({mean for _, mean in results}) == 1
    for text, _ in results:
        assert "layer fails on purpose" in text


@pytest.mark.skipif(os.environ.get("SMP_LONG_TESTS") != "1", reason="1,000 steps: with --long only")
@pytest.mark.parametrize("schedule", ["simple", "interleaved", "zero_bubble"])
def test_a_thousand_steps_take_no_more_memory_than_five_hundred(pool, schedule):
    results = pool(4).run("direct_jobs:watch_memory", {**CONFIG, "pipeline": schedule}, 1000, 100)

    for resident in results:
        assert len(resident) == 10
        # The allocator takes a few hundred steps to settle. One tensor of 4 KiB kept each step
        # would be 2 MiB from then on.
        assert resident[-1] - resident[4] < 512 * 1024, resident
