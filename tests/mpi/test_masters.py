# SPDX-License-Identifier: Apache-2.0
"""Scripts that change 32-bit masters, their gradients, and the parameters that have them."""

import pytest
import torch

EDITS = ("scale", "replace", "drop")
SHARDED = {"sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0,
           "sdp_gradient_clipping": 0}  # fmt: skip
STATE = {"shard_optimizer_state": True}
WAYS = {"replicas": {}, "state": STATE, "sharded": SHARDED}


def config(**others):
    return {"ddp": True, **others}


def assert_close(results, most):
    assert all(result <= most for result in results), results


@pytest.mark.parametrize("optimizer", ["SGD", "FusedAdam"])
@pytest.mark.parametrize("which", ["all", "of the second"])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_that_an_update_leaves_keep_their_scale(pool, way, which, optimizer):
    """A step adds those of a scaled loss to them."""
    settings = config(fp16=True, **WAYS[way])

    plain, scaled = (pool(2).run("master_jobs:kept_gradients", settings, scale, which, optimizer)
                     for scale in (1.0, 1024.0))  # fmt: skip

    for name, value in plain[0].items():
        torch.testing.assert_close(scaled[0][name], value, rtol=0, atol=2e-4)


@pytest.mark.parametrize("how", EDITS)
@pytest.mark.parametrize(
    ("settings", "scale", "most"),
    [(STATE, 1.0, 1e-6), (SHARDED, 1.0, 1e-6), ({"fp16": True}, 1024.0, 2e-3),
     ({"fp16": True, **SHARDED}, 1024.0, 2e-3)],
    ids=["state", "sharded", "fp16", "sharded fp16"],
)  # fmt: skip
def test_gradients_of_masters_may_be_changed(pool, settings, scale, most, how):
    assert_close(pool(2).run("master_jobs:edited", config(**settings), how, scale), most)


@pytest.mark.parametrize("how", [*EDITS, "norm", "zero", "whole norm"])
@pytest.mark.parametrize("settings", [STATE, SHARDED, {"bf16": True}],
                         ids=["state", "sharded", "bf16"])  # fmt: skip
def test_gradients_that_masters_hold_are_not_the_parameters(pool, settings, how):
    for text in pool(2).run("master_jobs:touch", config(**settings), how):
        assert "the gradient of parameter inp.weight was " in text
        assert "optimizer.clip_master_grads(max_norm)" in text


@pytest.mark.parametrize("settings", [STATE, SHARDED, {"bf16": True}],
                         ids=["state", "sharded", "bf16"])  # fmt: skip
def test_a_part_without_a_gradient_is_named_where_masters_move_it(pool, settings):
    for said in pool(2).run("master_jobs:branches", config(**settings)):
        used, text, left_out, again = said[0], *said[1:]
        assert (used, left_out, again) == (True, False, True)
        assert "2 parameters (mid.weight, mid.bias) had gradients before, and no" in text


@pytest.mark.parametrize("settings", [STATE, SHARDED], ids=["state", "sharded"])
def test_data_of_masters_may_be_set(pool, settings):
    assert_close(pool(2).run("master_jobs:assigned", config(**settings)), 1e-6)


@pytest.mark.parametrize("where", ["evaluation", "state dict", "local state dict"])
@pytest.mark.parametrize("settings", [STATE, {"bf16": True}], ids=["state", "bf16"])
def test_weights_of_before_a_change_of_masters_are_not_shown(pool, settings, where):
    for error in pool(2).run("master_jobs:unpublished", config(**settings), where, fails=True):
        assert "call optimizer.publish_masters() on all ranks" in error
