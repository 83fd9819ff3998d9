# SPDX-License-Identifier: Apache-2.0
"""Replicas of different lengths, and their buffers."""

import pytest
import torch
from jobs import reducer_jobs
from launching import run_mpi


def config(**others):
    return {"ddp": True, "microbatches": 2, **others}


@pytest.mark.parametrize("by_all", [True, False])
@pytest.mark.parametrize("batches", [[3, 1], [1, 4], [2, 2], [0, 2]])
def test_replicas_with_fewer_batches_accompany_the_others(pool, batches, by_all):
    results = pool(2).run(
        "reducer_jobs:uneven", config(), batches, divide_by_initial_world_size=by_all
    )

    expected = reducer_jobs.uneven_alone(batches, 2, by_all)
    for replica, (state, steps) in enumerate(results):
        assert steps == batches[replica]
        for name, value in expected.items():
            if name != "total":
                # After a step weights are no integers: sums in another order, a few units of 1e-7.
                torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-5)
        assert torch.equal(state["total"], results[0][0]["total"])


def test_end_of_a_replica_may_be_an_error(pool):
    errors = pool(2).run(
        "reducer_jobs:uneven", config(), [2, 1], throw_on_early_termination=True, fails=True
    )

    assert all("1 of 2 replicas have no more batches" in error for error in errors)


def test_replica_that_is_left_alone_hears_of_ways_out():
    outcome = run_mpi(2, "mismatch_jobs.py", '{"ddp": true}', "step", "end")

    assert outcome.code == 1
    # Gloo may notice the lost connection, or we that the rank has ended, whichever is first.
    told = (
        "rank 0 lost the connection to rank 1: ",
        "rank 1 has ended: none of these calls can end",
    )
    assert any(text in outcome.output for text in told)
    assert "(drop_last=True) or train inside model.join()" in outcome.output


def test_buffers_are_those_of_the_first_replica_when_asked(pool):
    settings = config(microbatches=1)
    sums = [[reducer_jobs.batch(step, rank, 1).sum().item() for step in (0, 1)] for rank in (0, 1)]

    broadcast = pool(2).run("reducer_jobs:buffers_of_replicas", settings, True)
    apart = pool(2).run("reducer_jobs:buffers_of_replicas", settings, False)

    assert broadcast == [sums[0][0] + sums[rank][1] for rank in (0, 1)]
    assert apart == [sum(own) for own in sums]
