# SPDX-License-Identifier: Apache-2.0
"""Several optimizers, groups that come later, complex parameters, and what optimizers look at."""

import pytest
import torch
from jobs.optimizer_jobs import ADDS

SHARDED = {"sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0,
           "sdp_gradient_clipping": 0}  # fmt: skip
STATE = {"shard_optimizer_state": True}
WAYS = {"replicas": {}, "state": STATE, "sharded": SHARDED}
CLOSE = 1e-12


def config(**others):
    return {"ddp": True, **others}


def assert_close(results, most=CLOSE):
    assert all(result <= most for result in results), results


@pytest.mark.parametrize("order", ["together", "each by itself"])
@pytest.mark.parametrize("way", WAYS)
def test_two_optimizers_train_as_in_plain_pytorch(pool, way, order):
    assert_close(pool(2).run("optimizer_jobs:train", config(**WAYS[way]), "by shape", order=order))


def test_two_optimizers_train_over_partitions_with_sharded_state(pool):
    settings = config(partitions=2, **STATE)

    assert_close(pool(4).run("optimizer_jobs:train", settings, "by shape"))


def test_an_optimizer_that_needs_whole_parameters_may_come_second(pool):
    """And the state that the first one has made at once goes over to whole parameters."""
    assert_close(pool(2).run("optimizer_jobs:train", config(**STATE), "whole first"), 1e-7)


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("how", ADDS)
@pytest.mark.parametrize("way", ["state", "sharded"])
def test_a_group_that_comes_later_is_trained_from_then_on(pool, way, how, at):
    settings = config(**WAYS[way])

    assert_close(pool(2).run("optimizer_jobs:train", settings, "rest", add=how, add_at=at))


@pytest.mark.parametrize("make", ["alone", "rest"])
@pytest.mark.parametrize("way", WAYS)
def test_complex_parameters_are_trained(pool, way, make):
    add = {"add": "method"} if make == "rest" else {}

    assert_close(
        pool(2).run("optimizer_jobs:train", config(**WAYS[way]), make, is_complex=True, **add)
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("sharded", "state"), ("state", "replicas"), ("replicas", "sharded"), ("sharded", "sharded")],
)
@pytest.mark.parametrize(("make", "add"), [("by shape", ""), ("rest", "method")])
def test_checkpoints_hold_all_optimizers_and_groups(pool, tmp_path, before, after, make, add):
    folder = str(tmp_path)
    wanted = pool(2).run("optimizer_jobs:save", config(**WAYS[before]), folder, make, add)

    found = pool(2).run("optimizer_jobs:resume", config(**WAYS[after]), folder, make, add)

    for state, expected in zip(found, wanted, strict=True):
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=0, atol=CLOSE)


def test_optimizers_of_another_number_are_not_resumed(pool, tmp_path):
    pool(2).run("optimizer_jobs:save", config(**SHARDED), str(tmp_path), "by shape", "")

    errors = pool(2).run(
        "optimizer_jobs:resume", config(**SHARDED), str(tmp_path), "alone", "", fails=True
    )

    assert all("is of SGD + AdamW" in error for error in errors), errors


@pytest.mark.parametrize("way", ["state", "sharded"])
def test_the_state_of_one_optimizer_is_of_its_parameters_alone(pool, way):
    for kept in pool(2).run("optimizer_jobs:reload_one", config(**WAYS[way])):
        assert all(kept)


def test_an_overflow_skips_both_and_is_counted_once(pool):
    for seen in pool(2).run("optimizer_jobs:overflow", config(fp16=True)):
        assert [scales for _, scales in seen] == [[2.0**8] * 2, [2.0**7] * 2, [2.0**7] * 2]
        assert [bool(changed) for changed, _ in seen] == [True, False, True]


def test_a_model_has_one_loss_scale(pool):
    errors = pool(1).run("optimizer_jobs:one_scale", config(fp16=True), fails=True)

    assert "give all its optimizers the same arguments" in errors[0]


def test_a_clipped_norm_is_not_clipped_as_if_it_were_not(pool):
    settings = config(**{**SHARDED, "sdp_gradient_clipping": 1.0})

    for norm, seen in pool(2).run("optimizer_jobs:clip_by_hand", settings, 0.5):
        assert norm > 2
        assert seen == pytest.approx([0.5], rel=1e-4)


@pytest.mark.parametrize(("ranks", "settings"), [(2, {}), (2, STATE), (4, {"partitions": 2})])
def test_an_update_within_an_accumulation_is_refused_on_all_ranks(pool, ranks, settings):
    settings = config(**settings)

    errors = pool(ranks).run("optimizer_jobs:early", settings, 3, 2, fails=True)

    assert all("before the last of backward_passes_per_step=3" in error for error in errors)
    if "partitions" not in settings:
        for apart in pool(ranks).run("optimizer_jobs:early", settings, 3, 3):
            assert max(apart) == 0, "a window that was dropped does not count"


@pytest.mark.parametrize(
    ("kind", "way", "refusal"),
    [
        ("signs", "sharded", ""),
        ("signs", "state", ""),
        ("normalised", "state", ""),
        ("normalised", "sharded", "Normalised, whose update needs whole parameters"),
        ("together", "sharded", "Together, whose update needs all parameters at once"),
        ("together", "state", "Together, whose update needs all parameters at once"),
        ("together", "replicas", ""),
    ],
)
def test_unknown_optimizers_are_right_or_refused(pool, kind, way, refusal):
    settings = config(**WAYS[way])
    if not refusal:
        assert_close(pool(2).run("optimizer_jobs:unknown", settings, kind))
        return

    errors = pool(2).run("optimizer_jobs:unknown", settings, kind, fails=True)

    assert all(refusal in error and "update_scope=" in error for error in errors), errors


@pytest.mark.parametrize("way", WAYS)
def test_exchanged_weights_are_those_that_modules_compute_with(pool, way):
    for seen in pool(2).run("optimizer_jobs:evaluate", config(**WAYS[way])):
        assert_close(seen)


def test_masters_that_a_script_changes_are_published_or_refused(pool):
    errors = pool(2).run("optimizer_jobs:change_masters", config(**SHARDED), False, fails=True)

    assert any("optimizer.publish_masters()" in error for error in errors)
    assert pool(2).run("optimizer_jobs:change_masters", config(**SHARDED), True) == [0.0, 0.0]


@pytest.mark.parametrize("way", [*WAYS, "pipeline"])
@pytest.mark.parametrize("kept", [False, True])
def test_the_first_updates_are_audited_over_all_ranks(pool, way, kept):
    """Pieces of the table without any used row are on some ranks, and are no fault."""
    settings = {"partitions": 2} if way == "pipeline" else config(**WAYS[way])

    found = pool(2).run("optimizer_jobs:audit", settings, kept)

    warned = [text for texts, _ in found for text in texts]
    told = [text for _, texts in found for text in texts]
    assert len(warned) == kept, warned
    assert all(text.startswith("2 parameters of `out` (out.weight, out.bias) had gradients, and no "
                               "optimizer changed them") for text in warned)  # fmt: skip
    assert len(told) == 1
    assert told[0].startswith("2 parameters of `head` (head.weight, head.bias) had no gradient")
