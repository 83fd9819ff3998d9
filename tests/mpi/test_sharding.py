# SPDX-License-Identifier: Apache-2.0
"""Sharded data parallelism: exact against one process, whatever is sharded over whom."""

import random
import re

import pytest
import torch
from jobs import sharding_jobs as jobs
from jobs.torch_scaler import TorchScaler
from launching import run_mpi

BASE = {"ddp": True, "microbatches": 2, **jobs.ALL_SHARDED, **jobs.NO_CLIP}


def config(degree: int, **others):
    return {**BASE, "sharded_data_parallel_degree": degree, **others}


def assert_same(results, expected, microbatches=2):
    wanted, losses = expected
    for rank, (state, own_losses, *_) in enumerate(results):
        for name, value in wanted.items():
            if name != "seen":  # counts the batches of one replica
                assert torch.equal(state[name], value), (rank, name)
        for step, both in enumerate(losses):
            replica = both[rank * microbatches : (rank + 1) * microbatches]
            assert own_losses[step] == replica, (rank, step)


@pytest.mark.parametrize("settings", [
    {}, {"sdp_max_live_parameters": 1}, {"sdp_reduce_bucket_size": 1},
    {"sdp_param_persistence_threshold": 7}, {"sdp_param_persistence_threshold": 10**9},
    {"deterministic_server": True, "pipeline": "simple"}, {"ddp_dist_backend": "smddp"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("ranks", "degree"), [(2, 2), (4, 2), (4, 4)])
def test_training_is_that_of_one_process_bit_by_bit(pool, ranks, degree, settings):
    results = pool(ranks).run(
        "sharding_jobs:train", config(degree, **settings), "strange", "sign", 4
    )

    assert_same(results, jobs.alone("strange", "sign", 4, ranks, 2))


@pytest.mark.parametrize("degree", [2, 4])
def test_adam_of_flat_shards_is_adam(pool, degree):
    results = pool(4).run("sharding_jobs:train", config(degree), "chain", "adamw", 5)

    wanted, losses = jobs.alone("chain", "adamw", 5, 4, 2)
    for rank, (state, own_losses, *_) in enumerate(results):
        for name, value in wanted.items():
            # After the first update weights are no integers; sums are then ordered otherwise.
            torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-6)
        assert own_losses[0] == losses[0][2 * rank : 2 * rank + 2]
        for name in state:
            assert torch.equal(state[name], results[0][0][name])


def test_first_update_of_adam_is_the_same_bit_by_bit(pool):
    results = pool(4).run("sharding_jobs:train", config(2), "strange", "adamw", 1)

    assert_same(results, jobs.alone("strange", "adamw", 1, 4, 2))


@pytest.mark.parametrize("settings", [
    {}, {"sdp_param_persistence_threshold": 7}, {"sdp_param_persistence_threshold": 10**9},
    {"sdp_max_live_parameters": 1}, {"sdp_reduce_bucket_size": 1},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("degree", [2, 4])
def test_five_updates_of_adam_from_whole_numbers_are_the_same_bit_by_bit(pool, degree, settings):
    results = pool(4).run("sharding_jobs:train", config(degree, **settings), "fan", "adamw", 5)

    assert_same(results, jobs.alone("fan", "adamw", 5, 4, 2))


@pytest.mark.parametrize("degree", [2, 4])
def test_gradients_of_several_steps_meet_their_replicas_at_the_last(pool, degree):
    results = pool(4).run("sharding_jobs:train", config(degree), "strange", "sign", 4, passes=2)

    assert_same(results, jobs.alone("strange", "sign", 4, 4, 2, passes=2))
    every = pool(4).run("sharding_jobs:train", config(degree), "strange", "sign", 4)
    for (*_, seldom), (*_, often) in zip(results, every, strict=True):
        assert 2 * seldom["replicas"] == often["replicas"], "hop 2 at the boundary alone"
        assert (often["replicas"] > 0) == (degree == 2)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"sdp_reduce_bucket_size": 1}], ids=str)
@pytest.mark.parametrize("degree", [2, 4])
def test_gradients_that_are_sent_from_where_they_lie_are_the_same(pool, degree, settings, passes):
    results = pool(4).run(
        "sharding_jobs:train", config(degree, **settings), "squares", "sign", 4, passes=passes
    )

    assert_same(results, jobs.alone("squares", "sign", 4, 4, 2, passes=passes))


def test_recomputed_blocks_change_nothing(pool):
    results = pool(2).run("sharding_jobs:train", config(2), "strange", "sign", 3, checkpointed=True)

    assert_same(results, jobs.alone("strange", "sign", 3, 2, 2))


def test_units_are_fetched_ahead_from_the_second_step_on(pool):
    results = pool(2).run("sharding_jobs:train", config(2), "chain", "sign", 3)

    for _, _, prefetched, use, _ in results:
        assert prefetched["expected"] == prefetched["needs"] > 8
        assert prefetched["ahead"] == prefetched["gathers"] - 1, "all but the first"
        assert use["live"] == 0, "nothing stays gathered"


def test_little_is_live_where_little_may_be(pool):
    plenty = pool(2).run("sharding_jobs:train", config(2), "chain", "sign", 3)

    results = pool(2).run(
        "sharding_jobs:train", config(2, sdp_max_live_parameters=1), "chain", "sign", 3
    )

    for (*_, use, _), (*_, more, _) in zip(results, plenty, strict=True):
        assert use["peak_live"] * 2 <= more["peak_live"]


def test_scripts_see_shapes_and_the_names_of_shards(pool):
    results = pool(2).run("sharding_jobs:look_at_parameters", config(2))

    numbers = 0
    for before, seen, sizes, flat, group, same in results:
        assert before[:2] == ((6, 6), 36)
        assert "its values are sharded over 2 ranks" in before[2], "no values outside of calls"
        assert seen and not any(seen), "values inside"
        assert sizes[:2] == (36, (6, 6))
        numbers += sizes[2]
        assert len(flat) == 1 and group == 2 and same
    assert numbers == 36


def test_evaluation_between_steps_sees_the_newest_weights(pool):
    settings = config(2, microbatches=1)

    results = pool(2).run("sharding_jobs:evaluate", settings)

    module = jobs.Strange().double()
    optimizer = jobs.make_optimizer("sign", module.parameters())
    for step in range(3):
        with torch.no_grad():
            expected = module(jobs.batch(9, 0).double())["out"][0]
        for seen, live in results:
            assert torch.equal(seen[step], expected) and live == 0
        optimizer.zero_grad()
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        for replica in range(2):
            (module(jobs.batch(step, replica).double())["out"][0].sum() / 2).backward()
        optimizer.step()


def test_backward_outside_of_a_step_trains_too(pool):
    results = pool(2).run("sharding_jobs:outside_of_steps", config(2, microbatches=1), 3)

    expected, _ = jobs.alone("strange", "sign", 3, 2, 1)
    for state in results:
        for name, value in expected.items():
            assert name == "seen" or torch.equal(state[name], value), name


#: None, the biases or all are persistent.
THRESHOLDS = [0, 7, 10**9]


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("degree", [2, 4])
def test_gradients_are_clipped_by_their_norm_over_the_whole_model(pool, degree, threshold):
    settings = config(degree, sdp_param_persistence_threshold=threshold)
    plain = pool(4).run("sharding_jobs:clipped", settings, 0)

    results = pool(4).run("sharding_jobs:clipped", {**settings, "sdp_gradient_clipping": 0.5}, 0.5)

    module = jobs.Chain()
    for replica in range(4):
        (module(jobs.batch(0, replica))["out"][0].sum() / 4 / 2).backward()
    for (norm, changes), (_, whole) in zip(results, plain, strict=True):
        grads = [p.grad * 2 / 2 for p in module.parameters()]
        expected = torch.linalg.vector_norm(torch.stack([g.double().norm() for g in grads])).item()
        assert norm == pytest.approx(expected, rel=1e-6)
        for name, change in changes.items():
            torch.testing.assert_close(change, whole[name] * (0.5 / norm), rtol=1e-3, atol=1e-6)


def test_state_takes_its_share_of_memory(pool):
    """16 bytes an element in 32 bits, and 18 with 16-bit copies, over the degree; and padding."""
    for others, each in (({}, 16), ({"bf16": True}, 18)):
        settings = config(4, microbatches=1, sdp_max_live_parameters=1, **others)

        results = pool(4).run("sharding_jobs:measure", settings)

        for used, elements in results:
            share = elements * each / 4
            state = used["parameters"] + used["gradients"] + used["optimizer"]
            assert share <= state <= 1.1 * share, (others, used)
            assert used["live"] == used["persistent"] == 0
            # Two blocks at most, where one may be: that in use and none fetched ahead.
            assert used["peak_live"] <= 2 * 4 * elements / 8 * 1.1


def test_gathered_parameters_and_spare_memory_are_no_activations(pool):
    width, rows, layers = 700, 512, 4
    settings = config(2, microbatches=1)

    kept = 2 * layers * rows * width * 4  # inputs and outputs of each GELU
    for found in pool(2).run("sharding_jobs:keep_activations", settings, width, rows, layers, 3):
        # The first step makes buffers that stay. The heap is all threads': one of them may free a
        # buffer of an exchange while it is read, so a step may be said to keep a little less.
        for bytes_ in found[1:]:
            assert abs(bytes_ - kept) < 0.1 * kept, (found, kept)


@pytest.mark.parametrize("degree", [2, 4])
def test_grad_scaler_skips_the_step_on_all_ranks(pool, degree):
    results = pool(4).run("sharding_jobs:with_grad_scaler", config(degree), 4, [1], 3)

    for scales, moved in results:
        assert scales == [64, 32, 32, 64]
        assert moved == [True, False, True, True]


def test_grad_scaler_of_random_overflows_has_torchs_scales_on_all_ranks(pool):
    generator = random.Random(8)
    spoiled = [step for step in range(30) if generator.random() < 0.25]

    results = pool(4).run("sharding_jobs:with_grad_scaler", config(2), 30, spoiled, 2)

    theirs = TorchScaler(scale=64.0, factor=2.0, window=2)
    expected = [theirs.update(step in spoiled) for step in range(30)]
    for scales, moved in results:
        assert scales == expected
        assert not any(moved[step] for step in spoiled)


# --- Bad input ---


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ("refuse_hook", "register_comm_hook reduces whole gradients"),
        ("refuse_join", "join is not"),
        ("refuse_cpu", "holds shards of them, since sharded_data_parallel_degree is 2; take them"),
    ],
)
def test_what_needs_whole_parameters_or_gradients_is_refused(pool, job, text):
    errors = pool(2).run(f"sharding_jobs:{job}", config(2), fails=True)

    assert all(text in error for error in errors)


#: Calls that ranks are in when one of them is through.
UNEVEN = {
    "sharded": (2, config(2), "gathering module"),
    "persistent": (2, config(2, sdp_param_persistence_threshold=10**9), "reducing the gradients"),
    "sharded twice": (4, config(2), ""),
    "optimizer": (2, {"ddp": True, "shard_optimizer_state": True}, "reducing the gradients of"),
    "16-bit": (2, {"ddp": True, "bf16": True}, "the sum of gradients over replicas of the model"),
    "tensor": (2, {"ddp": True, "tensor_parallel_degree": 2}, "an exchange of tensor parallelism"),
}


@pytest.mark.parametrize(("ranks", "settings", "call"), UNEVEN.values(), ids=UNEVEN)
def test_rank_with_fewer_batches_is_named_with_advice_that_applies(pool, ranks, settings, call):
    last = ranks - 1

    pool(ranks).start("sharding_jobs:too_few", settings, [2] * last + [1])
    errors = [pool(ranks).outcome(rank).error for rank in range(ranks)]

    assert not errors[last]
    ways = [f"rank {last} has "]
    if "tensor_parallel_degree" in settings:  # over gloo, which sees a connection end
        ways.append(f"lost the connection to rank {last}: ")
    said = [error for error in errors if any(way in error for way in ways)]
    assert said and all(errors[:last]), errors
    for error in said:
        if "SMPMismatchError: " in error:  # ranks that wait may see it before the connection ends
            assert re.search(r"waits in .* \(sharding_jobs\.py:\d+\)", error)
            assert "give all ranks as many batches" in error
            continue
        assert call in error
        assert "give all ranks the same number, for example by drop_last=True" in error
        assert "SMPConnectionError: " in error
    for error in errors:
        assert "model.join()" not in error, "which is refused here"
        assert "frame #" not in error and "Exception raised from" not in error


@pytest.mark.parametrize(
    ("threshold", "turn"),
    [
        (0, "gathering module blocks.1"),
        (300, "reducing the gradients of"),
    ],
    ids=["sharded", "persistent"],
)
def test_a_module_that_some_ranks_run_is_named_and_nobody_hangs(threshold, turn):
    outcome = run_mpi(2, "divergence.py", str(threshold), SMP_TIMEOUT_SECONDS="60")

    assert outcome.code != 0
    assert "ranks of one shard group run different modules" in outcome.output
    assert turn in outcome.output


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("memory", "blocks.1.inner.weight was given other memory"),
        ("value", "blocks.1.inner.weight was changed in place"),
        ("write", "blocks.1.inner.weight was read or written, and its values are sharded"),
    ],
)
def test_parameters_changed_behind_the_store_are_named(pool, how, text):
    errors = pool(2).run("sharding_jobs:meddle", config(2), how, fails=True)

    assert all(text in error for error in errors)


OPTIMIZER = {"sharded_data_parallel_degree": 1, "shard_optimizer_state": True}


@pytest.mark.parametrize("replica", [0, 1])
@pytest.mark.parametrize(("ranks", "settings"), [
    (2, {"sdp_gradient_clipping": 1.0}), (2, {}), (2, {"bf16": True}), (4, {}),
    (2, OPTIMIZER), (2, {**OPTIMIZER, "bf16": True}), (4, {**OPTIMIZER, "partitions": 2}),
    (2, {"sharded_data_parallel_degree": 1, "bf16": True}),
], ids=str)  # fmt: skip
def test_gradients_that_are_no_numbers_end_the_step_on_all_ranks(pool, ranks, settings, replica):
    found = pool(ranks).run("sharding_jobs:not_finite", config(2, **settings), replica)

    for errors, unmoved in found:
        assert len(errors) == 2 and unmoved
        assert all("NaN or infinity; the step was not made" in error for error in errors)
    said = [errors[0] for errors, _ in found]
    assert any("the gradient of parameter first.weight" in error for error in said), said
