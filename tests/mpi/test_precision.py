# SPDX-License-Identifier: Apache-2.0
"""16-bit computing and sharded optimizer state: masters that train as one process would."""

import itertools
import math
import random

import pytest
import torch
from jobs import precision_jobs
from jobs import sharding_jobs as jobs
from jobs.torch_scaler import TorchScaler


def config(partitions: int = 1, **others):
    return {"ddp": True, "microbatches": 2, "partitions": partitions, "auto_partition": False,
            "default_partition": 0, **others}  # fmt: skip


def assert_same(results, expected, replicas, dtype=torch.float32):
    wanted, _ = expected
    for rank, (state, *_) in enumerate(results):
        for name, value in wanted.items():
            if name != "seen":
                assert torch.equal(state[name].to(value.dtype), value), (rank, name)
                assert state[name].dtype == (value.dtype if dtype is torch.float32 else dtype)


TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("ranks", "partitions", "others"),
    [
        (1, 1, {}),
        (2, 1, {}),
        (4, 2, {}),
        (2, 1, {"deterministic_server": True}),
        (4, 2, {"deterministic_server": True}),
        (2, 1, {"shard_optimizer_state": True}),
        (4, 2, {"shard_optimizer_state": True}),
        (4, 1, {"sharded_data_parallel_degree": 2, **jobs.ALL_SHARDED, **jobs.NO_CLIP}),
        (4, 1, {"sharded_data_parallel_degree": 4, **jobs.NO_CLIP}),
    ],
    ids=str,
)
def test_16_bits_with_masters_train_as_32_bits_where_both_are_exact(
    pool, ranks, partitions, others, precision
):
    settings = config(partitions, **others, **{precision: True})

    results = pool(ranks).run("precision_jobs:train_in", settings, "short", "sign", 4)

    replicas = ranks // partitions
    assert_same(results, jobs.alone("short", "sign", 4, replicas, 2), replicas, TYPES[precision])
    for _, _, types, _ in results:
        assert types == [str(TYPES[precision])]


def test_masters_keep_what_16_bits_would_lose(pool):
    rate = 2.0**-20

    ((masters, shown),) = pool(1).run(
        "precision_jobs:tiny_updates", config(bf16=True, microbatches=1), 3, rate
    )

    module = precision_jobs.without_zeros()
    module(jobs.batch(0, 0))["out"][0].sum().backward()
    for name, parameter in module.named_parameters():
        assert torch.equal(shown[name].float(), parameter), name
        assert torch.equal(masters[name], parameter - 3 * rate * parameter.grad), name


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(("ranks", "partitions"), [(2, 1), (4, 1), (4, 2)])
def test_sharded_optimizer_state_trains_as_one_process_bit_by_bit(pool, ranks, partitions, before):
    settings = config(partitions, shard_optimizer_state=True)
    kind = "strange" if partitions == 1 else "short"

    results = pool(ranks).run("precision_jobs:train_in", settings, kind, "sign", 4, before=before)

    replicas = ranks // partitions
    assert_same(results, jobs.alone(kind, "sign", 4, replicas, 2), replicas)


@pytest.mark.parametrize(
    "others", [{"fp16": True}, {"bf16": True, "shard_optimizer_state": True}], ids=str
)
def test_masters_take_what_a_script_wrote_and_keep_the_rest(pool, others):
    results = pool(2).run("precision_jobs:write_parameters", config(**others))

    kind = next(TYPES[name] for name in others if name in TYPES)
    for masters, before in results:
        wanted = {**before, "0.weight": torch.full((4, 4), 0.1).to(kind).float()}
        assert masters.keys() == wanted.keys()
        assert all(torch.equal(masters[name], value) for name, value in wanted.items())


def test_sharded_adam_is_adam_bit_by_bit_and_balanced(pool):
    plain = pool(2).run("precision_jobs:train_in", config(), "short", "adamw", 5)

    # Two ranks: a sum of more has more than one order.
    results = pool(2).run(
        "precision_jobs:train_in", config(shard_optimizer_state=True), "short", "adamw", 5
    )

    for (state, losses, *_), (wanted, wanted_losses, *_) in zip(results, plain, strict=True):
        assert losses == wanted_losses
        for name, value in wanted.items():
            assert torch.equal(state[name], value), name
    assert len({held for *_, held in results}) == 1, "the same number of elements on all ranks"
    assert results[0][3] < plain[0][3]


@pytest.mark.parametrize("others", [
    {"sharded_data_parallel_degree": 2, **jobs.ALL_SHARDED, **jobs.NO_CLIP},
    {"shard_optimizer_state": True},
], ids=str)  # fmt: skip
def test_gradients_that_are_not_zeroed_add_up(pool, others):
    results = pool(4).run("precision_jobs:accumulate_on", config(microbatches=1, **others))

    expected = precision_jobs.accumulate_on_alone(4)
    for pieces in results:
        for name, (start, piece) in pieces.items():
            assert torch.equal(piece, expected[name].narrow(0, start, piece.numel())), name


SHARDED = {"sharded_data_parallel_degree": 2, **jobs.ALL_SHARDED, **jobs.NO_CLIP}


@pytest.mark.parametrize(
    ("ranks", "partitions", "others"),
    [(2, 1, {}), (2, 2, {}), (2, 1, {"shard_optimizer_state": True}), (4, 1, SHARDED)],
    ids=str,
)
def test_overflow_on_one_rank_skips_the_step_on_all(pool, ranks, partitions, others):
    spoiler = 0 if partitions == 2 else ranks - 1
    results = pool(ranks).run(
        "precision_jobs:scale_losses", config(partitions, fp16=True, **others), 6, [1, 4], spoiler,
        dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 64, "scale_window": 2},
    )  # fmt: skip

    for seen, state in results:
        assert [scale for scale, *_ in seen] == [64, 32, 32, 64, 32, 32]
        assert [overflow for _, overflow, _ in seen] == [False, True, False, False, True, False]
        for name, value in results[0][1].items():
            assert torch.equal(state[name], value)


@pytest.mark.parametrize(
    ("ranks", "partitions", "others"),
    [(2, 2, {}), (2, 1, {"shard_optimizer_state": True}), (4, 1, SHARDED)],
    ids=str,
)
def test_scales_of_random_overflows_are_torchs_on_all_ranks(pool, ranks, partitions, others):
    generator = random.Random(9)
    spoiled = [step for step in range(100) if generator.random() < 0.3]

    results = pool(ranks).run(
        "precision_jobs:scale_losses", config(partitions, fp16=True, **others), 100, spoiled, 0,
        dynamic_loss_scale=True,
        dynamic_loss_args={"init_scale": 64, "scale_window": 2, "min_scale": 2.0**-50},
    )  # fmt: skip

    theirs = TorchScaler(scale=64.0, factor=2.0, window=2)
    for step, (scale, overflow, _) in enumerate(results[0][0]):
        assert overflow or step not in spoiled
        assert scale == theirs.update(overflow), step  # it may also have grown too high
    for seen, _ in results:
        assert seen == results[0][0]


def test_scale_falls_from_far_too_high_until_gradients_fit(pool):
    ((seen, _),) = pool(1).run(
        "precision_jobs:scale_losses", config(fp16=True), 30, [], 0, dynamic_loss_scale=True
    )

    overflows = [overflow for _, overflow, _ in seen]
    assert 16 < overflows.index(False) < 26, "from 2**32 down"
    for step, (scale, *_) in enumerate(seen):
        assert scale == 2.0 ** (32 - sum(overflows[: step + 1]))


@pytest.mark.parametrize(
    ("ranks", "partitions", "others"),
    [(1, 1, {}), (2, 2, {}), (2, 1, {"shard_optimizer_state": True}), (4, 1, SHARDED),
     (4, 1, {**SHARDED, "sdp_param_persistence_threshold": 7}),
     (4, 1, {**SHARDED, "sdp_param_persistence_threshold": 10**9})],
    ids=str,
)  # fmt: skip
def test_masters_are_clipped_by_their_norm_over_all_partitions(pool, ranks, partitions, others):
    results = pool(ranks).run(
        "precision_jobs:scale_losses", config(partitions, fp16=True, **others), 2, [1], 0,
        clip=0.25, static_loss_scale=16.0,
    )  # fmt: skip

    module = jobs.Short()
    replicas = ranks // partitions
    for replica in range(replicas):
        (module(jobs.batch(0, replica))["out"][0].sum() / 2 / replicas).backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in module.parameters()]).item()
    for seen, _ in results:
        assert seen[0][2] == pytest.approx(expected, rel=1e-6)
        assert seen[1] == (16.0, True, -1.0)


@pytest.mark.parametrize("norm_type", [2.0, math.inf])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_norm_over_partitions_is_no_number_if_one_gradient_is_none(pool, rank, norm_type):
    norms = pool(2).run(
        "precision_jobs:norm_where_one_gradient_is_lost", config(2), rank, norm_type
    )

    assert all(map(math.isnan, norms)), norms


def test_whole_tensor_optimizers_need_whole_tensors(pool):
    sharded = config(sharded_data_parallel_degree=2, **jobs.NO_CLIP)
    errors = pool(2).run("precision_jobs:refuse_per_tensor", sharded, "adafactor", fails=True)
    assert all("Adafactor, whose update needs whole parameters" in error for error in errors)

    shared = config(shard_optimizer_state=True)
    errors = pool(2).run("precision_jobs:refuse_per_tensor", shared, "lbfgs", fails=True)
    assert all("LBFGS, whose update needs all parameters at once" in error for error in errors)

    masters = pool(1).run(
        "precision_jobs:not_by_element", config(bf16=True, microbatches=1), "lamb", 2
    )
    plain = pool(1).run("precision_jobs:not_by_element", config(microbatches=1), "lamb", 2)
    for name, value in plain[0].items():
        torch.testing.assert_close(masters[0][name].double(), value, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", precision_jobs.BY_NORMS)
@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        (2, {"shard_optimizer_state": True}),
        (4, {"shard_optimizer_state": True, "partitions": 2}),
        (2, {"sharded_data_parallel_degree": 2, **jobs.ALL_SHARDED, **jobs.NO_CLIP}),
        (4, {"sharded_data_parallel_degree": 2, **jobs.NO_CLIP}),
        (4, {"sharded_data_parallel_degree": 4, **jobs.ALL_SHARDED, **jobs.NO_CLIP}),
    ],
    ids=str,
)
def test_norms_of_shards_are_those_of_whole_parameters(pool, ranks, settings, kind):
    """Some ranks own nothing of the last group, and most parameters lie on several."""
    found = pool(ranks).run(
        "precision_jobs:not_by_element", config(**{"microbatches": 1, **settings}), kind, 4
    )

    expected = precision_jobs.not_by_element_alone(kind, 4, ranks // settings.get("partitions", 1))
    for state in found:
        for name, value in expected.items():
            # Norms of parts are added up in another order than those of wholes.
            torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-12)


def test_stepping_before_the_accumulation_ends_is_refused(pool):
    errors = pool(1).run("precision_jobs:step_too_early", config(bf16=True), fails=True)

    assert all("before the last of backward_passes_per_step" in error for error in errors)


@pytest.mark.parametrize(
    ("kind", "ranks", "settings"),
    [
        *itertools.product(precision_jobs.BY_WHOLES, (2, 3), ({},)),
        *itertools.product(precision_jobs.BY_WHOLES, (4,), ({"partitions": 2},)),
        ("adafactor", 2, {"bf16": True}),
    ],
    ids=str,
)
def test_optimizers_that_look_at_whole_tensors_share_whole_parameters(pool, kind, ranks, settings):
    found = pool(ranks).run(
        "precision_jobs:not_by_element",
        config(shard_optimizer_state=True, microbatches=1, **settings),
        kind,
        4,
    )

    expected = precision_jobs.not_by_element_alone(kind, 4, ranks // settings.get("partitions", 1))
    close = {"rtol": 3e-2, "atol": 3e-2} if "bf16" in settings else {"rtol": 1e-9, "atol": 1e-12}
    for state in found:
        for name, value in expected.items():
            torch.testing.assert_close(state[name].double(), value, **close)


def test_whole_parameters_are_on_one_rank_each(pool):
    found = pool(3).run(
        "precision_jobs:owned_parameters", config(shard_optimizer_state=True), "adafactor"
    )

    sizes = found[0][1]
    for owned, _ in found:
        assert all(elements == sizes[name] for name, elements in owned.items()), owned
    assert sorted(name for owned, _ in found for name in owned) == sorted(sizes)
    assert sum(bool(owned) for owned, _ in found) > 1, "one rank steps all"
