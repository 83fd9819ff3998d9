# SPDX-License-Identifier: Apache-2.0
"""Gradients of replicas, averaged: exact against one process, whatever the steps look like."""

import pytest
import torch
from jobs import reducer_jobs
from rank_pool import RankPool

TINY = 100 / 2**20  # less than a parameter: a bucket for each


def config(partitions: int = 1, **others):
    settings = {"partitions": partitions, "ddp": True, "microbatches": 2, **others}
    return {"auto_partition": False, "default_partition": 0, **settings}


def assert_same(results, expected):
    for step, wanted in enumerate(expected):
        for seen, _ in results:
            for name, grad in seen[step].items():
                if wanted[name] is None:
                    assert grad is None, (step, name)
                else:
                    assert grad is not None and torch.equal(grad, wanted[name]), (step, name)


@pytest.mark.parametrize("bucket_cap_mb", [TINY, 300 / 2**20, 25])
@pytest.mark.parametrize(
    ("ranks", "partitions", "backend"), [(2, 1, "auto"), (4, 2, "auto"), (4, 2, "smddp")]
)
def test_gradients_are_those_of_one_process_bit_by_bit(
    pool, ranks, partitions, backend, bucket_cap_mb
):
    settings = config(partitions, ddp_dist_backend=backend)
    results = pool(ranks).run("reducer_jobs:gradients", settings, bucket_cap_mb)

    assert_same(results, reducer_jobs.alone(2, 2))


def test_ranks_may_agree_over_a_group_of_their_own(pool):
    settings = config(ddp_dist_backend="smddp")
    results = pool(2).run("reducer_jobs:gradients_by_a_group_for_flags", settings, TINY)

    assert_same(results, reducer_jobs.alone(2, 2))


def test_buckets_are_on_their_way_before_backward_ends(pool):
    results = pool(2).run("reducer_jobs:gradients", config(), TINY)

    for _, progress in results:
        assert progress[0] == (0, 4), "the first step teaches"
        assert progress[1][0] >= 3 and progress[1][1] == 4
        assert progress[-1][0] >= 3


@pytest.mark.parametrize("settings", [{"deterministic_server": True}, {}])
def test_without_overlap_all_goes_at_the_end(pool, settings):
    options = {} if settings else {"overlapping_allreduce": False}

    results = pool(2).run("reducer_jobs:gradients", config(**settings), TINY, **options)

    assert_same(results, reducer_jobs.alone(2, 2))
    assert all(early == 0 for _, progress in results for early, _ in progress)


def test_gradients_of_several_steps_are_averaged_at_the_last(pool):
    results = pool(2).run("reducer_jobs:gradients", config(), TINY, passes=4, zero=False)

    expected = reducer_jobs.alone(2, 2, zero=False)
    for step in (3, 7):
        for seen, _ in results:
            for name, grad in seen[step].items():
                wanted = expected[step][name]
                assert (grad is None) == (wanted is None)
                assert grad is None or torch.equal(grad, wanted), (step, name)
    first = [seen[2]["first.weight"] for seen, _ in results]
    assert not torch.equal(*first), "not averaged before"


@pytest.mark.parametrize("kind", ["own", "ddp"])
def test_hook_reduces_the_buckets(pool, kind):
    plain = pool(2).run("reducer_jobs:hooked", config(), "none")

    results = pool(2).run("reducer_jobs:hooked", config(), kind)

    for (grads, calls), (expected, _) in zip(results, plain, strict=True):
        assert grads.keys() == expected.keys()
        for name, grad in grads.items():
            # DDP's own hook averages over replicas only: microbatches are the script's business.
            assert torch.equal(grad / (2 if kind == "ddp" else 1), expected[name]), name
        if kind == "own":
            assert {state for state, *_ in calls} == {"mine"}
            assert sum(last for _, _, last, _ in calls) == 3, "one last bucket a step"
            assert sum(count for *_, count in calls) == 3 * len(grads)


def test_a_model_that_is_kept_does_not_keep_connections_of_its_session():
    """Or a rank that waits there in vain would do so for as long as its time limit."""
    ranks = RankPool(2)
    try:
        found = ranks.run("reducer_jobs:threads_of_a_kept_model", config())
    finally:
        ranks.close()

    assert all(before > after == 0 for before, after in found), found


def test_hook_that_returns_too_little_is_refused(pool):
    errors = pool(2).run("reducer_jobs:broken_hook", config(), fails=True)

    assert all("the communication hook returned" in error for error in errors)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["auto", "smddp"])
def test_hook_whose_future_never_ends_is_waited_for_with_a_deadline(backend):
    impatient = RankPool(2, {"SMP_TIMEOUT_SECONDS": "6"})
    try:
        settings = config(ddp_dist_backend=backend)
        errors = impatient.run("reducer_jobs:endless_hook", settings, fails=True)
    finally:
        impatient.close()

    for error in errors:
        assert "SMPCommTimeoutError" in error
        assert "the future that the communication hook returned was not done after 6 s" in error
