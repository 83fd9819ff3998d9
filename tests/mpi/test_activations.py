# SPDX-License-Identifier: Apache-2.0
"""Recomputed and offloaded activations: the bits of training are the same."""

import pytest
import torch

SPLIT = {"blocks.2": 1, "blocks.3": 1, "blocks.4": 1, "head": 1}


def config(partitions: int, **others):
    return {
        "partitions": partitions,
        "microbatches": 4,
        "deterministic_server": True,
        "auto_partition": False,
        "default_partition": 0,
        **others,
    }


def assert_same_training(results, expected):
    for (losses, state, *_), (own_losses, own_state, *_) in zip(results, expected, strict=True):
        assert losses == own_losses
        assert state.keys() == own_state.keys()
        for name, value in own_state.items():
            assert torch.equal(state[name], value), name


STEPS, MICROBATCHES = 3, 4
FORWARDS = STEPS * MICROBATCHES


@pytest.mark.parametrize(
    ("how", "schedule"),
    [
        ("set each", "interleaved"),
        ("set each", "simple"),
        ("set each", "zero_bubble"),
        ("set contiguous", "interleaved"),
        ("set group_2", "interleaved"),
        ("blocks", "interleaved"),
        ("call", "interleaved"),
        ("sequential group_4", "interleaved"),
        ("sequential group_4", "zero_bubble"),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_recomputing_changes_no_bit_and_happens_once(pool, ranks, how, schedule):
    settings = config(ranks, pipeline=schedule)
    # Calls that reach another partition along other routes draw random numbers in another order.
    dropout = 0.2 if how in ("set each", "blocks") or ranks == 1 else 0.0
    pins = SPLIT if ranks > 1 else None
    plain = pool(ranks).run("activation_jobs:train", settings, "", pins, dropout=dropout)

    results = pool(ranks).run("activation_jobs:train", settings, how, pins, dropout=dropout)

    assert_same_training(results, plain)
    for _, _, counts, _ in plain:
        assert set(counts.values()) <= {(FORWARDS, FORWARDS)}
    counts = {name: count for _, _, local, _ in results for name, count in local.items()}
    assert {forwards for forwards, _ in counts.values()} == {2 * FORWARDS}
    assert len(counts) == 6
    assert "not while the rank waits" not in pool(ranks).log_text(), "no gradient is deferred"


@pytest.mark.parametrize(
    ("horizon", "schedule"), [(1, "interleaved"), (4, "interleaved"), (1, "zero_bubble")]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_offloading_changes_no_bit_and_leaves_nothing_behind(pool, ranks, horizon, schedule):
    pins, batch = SPLIT if ranks > 1 else None, 1024  # 8 KiB an activation, enough to be moved
    settings = config(ranks, pipeline=schedule)
    plain = pool(ranks).run("activation_jobs:train", settings, "", pins, batch)

    results = pool(ranks).run(
        "activation_jobs:train",
        {**settings, "offload_activations": True, "activation_loading_horizon": horizon},
        "set each",
        pins,
        batch,
    )

    assert_same_training(results, plain)
    for _, _, counts, stats in results:
        inputs = FORWARDS * len(counts)
        assert stats == (inputs, inputs, 0, 0), "put, taken, now in slow and in fast memory"


def test_activations_too_small_to_move_stay(pool):
    ((*_, stats),) = pool(1).run(
        "activation_jobs:train", config(1, offload_activations=True), "set each"
    )

    assert stats == (0, 0, 0, 0)


@pytest.mark.parametrize("partition", [0, 1])
def test_structures_and_keywords_reach_a_checkpointed_module(pool, partition):
    results = pool(2).run("activation_jobs:pass_structures", config(2, microbatches=2), partition)

    # out = sum (x*3*2)^2 + 2x*3; d/dx = 72 x + 6, over 2 microbatches.
    x = torch.arange(32.0).view(4, 8)
    assert results[0][0] == (36 * x * x + 6 * x).sum().item()
    assert results[0][1] == ((72 * x + 6) / 2).tolist()
    grads = {name: value for result in results for name, value in result[2].items()}
    # d/dweight = 2 x^2 * 3 * 4 + 2x, d/dscale = 2 x^2 * 2 * 9.
    assert grads["far.weight"] == ((24 * x * x + 2 * x) / 2).sum(0).tolist()
    assert grads["scale"] == ((36 * x * x) / 2).sum(0).tolist()


def test_module_split_by_hand_is_refused(pool):
    errors = pool(2).run("activation_jobs:checkpoint_a_split_module", config(2), False, fails=True)

    for error in errors:
        assert "SMPPartitionError" in error
        assert "module 0: it is on partition 0, but 0.far below it on 1" in error


def test_module_split_by_the_partitioner_is_left_as_it_is(pool):
    results = pool(2).run(
        "activation_jobs:checkpoint_a_split_module",
        {"partitions": 2, "microbatches": 4},
        False,
    )

    assert len({round(result, 4) for result in results}) <= 2


def test_torchs_own_checkpoint_works_where_it_spans_no_partition(pool):
    pool(1).run("activation_jobs:checkpoint_a_split_module", config(1), True)


def test_torchs_own_checkpoint_over_partitions_is_refused_by_name(pool):
    errors = pool(2).run("activation_jobs:checkpoint_a_split_module", config(2), True, fails=True)

    assert any("module 0.far of partition 1 was called in a backward" in error for error in errors)


def test_regions_keep_their_inputs_only(pool):
    (everything,) = pool(1).run("activation_jobs:grow_memory", config(1), "")
    (inputs,) = pool(1).run("activation_jobs:grow_memory", config(1), "set each")

    # Six blocks whose inner width is 64 times that of their input.
    assert inputs * 20 < everything
