# SPDX-License-Identifier: Apache-2.0
"""Ranks in calls that wait for each other name both calls, and do not wait for the timeout."""

import json
import re

import pytest
from launching import run_mpi

PIPELINE = {"pipeline_parallel_degree": 2}
SHARDED = {"ddp": True, "sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0}
TENSORS = {"tensor_parallel_degree": 2, "ddp": True}
TEXTS = {
    "step": r"step different_calls\.<locals>\.train_step",
    "state_dict": r"DistributedModel\.state_dict\(\)",
    "barrier": r"smp\.barrier over WORLD",
    "allgather": r"smp\.allgather over WORLD",
    "layer": r"an exchange of tensor parallelism",
}


def sentence(calls: tuple[str, str], order: tuple[int, int]) -> str:
    return ", ".join(
        rf"rank {rank} waits in {TEXTS[calls[rank]]} \(mismatch_jobs\.py:\d+\)" for rank in order
    )


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        (TENSORS, ("layer", "barrier")),
        (PIPELINE, ("state_dict", "barrier")),  # if smp.rank() == 0: torch.save(...)
        pytest.param(PIPELINE, ("barrier", "step"), marks=pytest.mark.thorough),
        pytest.param(PIPELINE, ("state_dict", "step"), marks=pytest.mark.long),
        pytest.param(PIPELINE, ("step", "barrier"), marks=pytest.mark.long),
        pytest.param(PIPELINE, ("barrier", "allgather"), marks=pytest.mark.long),
    ],
)
def test_both_calls_are_named_with_their_lines(pool, settings, calls):
    errors = pool(2).run("mismatch_jobs:different_calls", settings, *calls, fails=True)

    either = f"({sentence(calls, (0, 1))}|{sentence(calls, (1, 0))})"
    named = [error for error in errors if "SMPMismatchError" in error]
    assert named, errors
    for error in named:
        assert re.search(either, error), error
    for error in set(errors) - set(named):  # learned it from the one that saw it first
        assert re.search(r"SMPStepError: rank \d failed|SMPConnectionError", error)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        (SHARDED, ("barrier", "step")),
        ({"ddp": True}, ("barrier", "step")),  # replicas begin it by sending buffers
        pytest.param(SHARDED, ("barrier", "state_dict"), marks=pytest.mark.long),
    ],
)
def test_a_rank_that_waits_for_tensors_ends_with_the_one_that_does_not(settings, calls):
    outcome = run_mpi(2, "mismatch_jobs.py", json.dumps(settings), *calls)

    assert outcome.code == 1
    assert "SMPMismatchError: rank 0 waits in smp.barrier over WORLD" in outcome.output
    assert re.search(r"rank 1 waits in .* \(mismatch_jobs\.py:\d+\): none", outcome.output)


def test_a_rank_that_has_left_is_not_waited_for(pool):
    ranks = pool(2)

    ranks.start("mismatch_jobs:different_calls", PIPELINE, "barrier", "end")
    errors = [ranks.outcome(rank).error for rank in range(2)]

    assert "rank 0 waits in smp.barrier over WORLD" in errors[0]
    assert "rank 1 has ended" in errors[0]
    assert not errors[1]
