# SPDX-License-Identifier: Apache-2.0
"""Code that needs values of sharded parameters has them, or is told by name that it cannot."""

import pytest
from jobs import gathering_jobs as jobs

SHARDED = {"ddp": True, "sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0,
           "sdp_param_persistence_threshold": 0}  # fmt: skip
LITTLE = {**SHARDED, "sdp_max_live_parameters": 1}
CASES = [
    *(("hides", how) for how in jobs.HIDDEN),
    *(("changes", how) for how in jobs.CHANGED),
    *(("returns", how) for how in jobs.VIEWS),
    *(("reads", how) for how in ("parameters", "kept", "function", "functional", "recomputed")),
]


@pytest.mark.parametrize("settings", [SHARDED, LITTLE], ids=["plenty", "little"])
@pytest.mark.parametrize(("kind", "how"), CASES)
def test_training_is_plain_pytorch_s_to_the_bit(pool, kind, how, settings):
    for losses, weights, live in pool(2).run("gathering_jobs:train", settings, kind, how):
        assert (losses, weights, live) == (0, 0, 0)


@pytest.mark.parametrize("loss", ["penalty", "weights"])
def test_a_loss_may_need_gradients_and_weights(pool, loss):
    for losses, weights, _ in pool(2).run("gathering_jobs:train", SHARDED, "reads", "plain", loss):
        assert (losses, weights) == (0, 0)


@pytest.mark.parametrize("settings", [
    {}, {"ddp": True}, SHARDED, {"ddp": True, "shard_optimizer_state": True},
    {"partitions": 2, "ddp": True},
], ids=["one", "replicas", "sharded", "state", "pipeline"])  # fmt: skip
def test_hooks_of_gradients_run_before_the_library_s(pool, settings):
    ranks = 2 if settings else 1

    found = pool(ranks).run("gathering_jobs:train", settings, "reads", "plain", "mse", True)

    for losses, weights, _ in found:
        assert max(losses, weights) <= 1e-15


@pytest.mark.parametrize("how", list(jobs.LOOKS))
def test_reading_between_steps_is_an_error_that_says_how(pool, how):
    for kind, text in pool(2).run("gathering_jobs:look", SHARDED, how):
        assert (
            "parameter mid.weight was read or written, and its values are sharded over 2 ranks"
            in text
        )
        assert "smp.gathered_parameters(model)" in text
        # PyTorch says the same words of accesses that are no operator.
        assert kind == "SMPStepError" or how in ("list", "numpy", "print")


def test_gathered_parameters_have_their_values(pool):
    for norms, wanted, text in pool(2).run("gathering_jobs:gathered", SHARDED):
        assert norms == [wanted] * 4
        assert "parameter mid.weight was changed in place outside of the optimizer" in text


def test_frozen_layers_are_given_back_in_the_backward(pool):
    settings = {**SHARDED, "sdp_max_live_parameters": 6000}

    for peak, allowed in pool(2).run("gathering_jobs:frozen", settings):
        assert 0 < peak <= allowed


@pytest.mark.parametrize("settings", [SHARDED, {"ddp": True, "shard_optimizer_state": True}],
                         ids=["sharded", "state"])  # fmt: skip
def test_state_dicts_are_the_modules_own(pool, settings):
    for saved, loaded in pool(2).run("gathering_jobs:renamed", settings):
        assert (saved, loaded) == (0, 0)


def test_slices_are_not_taken_for_whole_parameters(pool):
    settings = {"tensor_parallel_degree": 2, "ddp": True}

    for error in pool(2).run("gathering_jobs:gather_slices", settings, fails=True):
        assert "split over 2 tensor-parallel ranks" in error
