# SPDX-License-Identifier: Apache-2.0
"""``offload_wrapper`` of SMP v2: inputs of checkpointed layers leave the device and come back ahead
of their backwards, never more of them than the horizon says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

#: Layers, two batches a step, two steps; and the mask, which the first layer alone gives away.
PUT = (6 + 1) * 2 * 2


@pytest.mark.parametrize("impl", ["REENTRANT", "NO_REENTRANT"])
@pytest.mark.parametrize("horizon", [1, 2, 4])
def test_no_bit_changes_and_no_more_inputs_are_there_than_the_horizon(
    pool: Any, impl: str, horizon: int
) -> None:
    job, config = pool(2), {"activation_loading_horizon": horizon}

    offloaded, plain = (
        job.run("sagemaker_offload_jobs:trained", {}, config, impl, offloads)
        for offloads in (True, False)
    )

    for ours, theirs in zip(offloaded, plain, strict=True):
        assert ours["losses"] == theirs["losses"]
        assert all(map(torch.equal, ours["values"], theirs["values"]))
        assert (ours["put"], theirs["put"]) == (PUT, 0)
        assert ours["left"] == 0
        assert ours["highest fast"] <= horizon
        assert max(ours["highest"].values()) <= horizon
        assert theirs["highest"]["forward"] == 6


def test_what_is_switched_off_is_pytorchs_own(pool: Any) -> None:
    off = {"sm_activation_offloading": False}

    results = pool(2).run("sagemaker_offload_jobs:trained", {}, off, "NO_REENTRANT", True, False)

    assert all(one["put"] == 0 for one in results)


def test_a_model_without_checkpointing_is_refused(pool: Any) -> None:
    errors = pool(2).run(
        "sagemaker_offload_jobs:trained", {}, {}, "NO_REENTRANT", True, False, fails=True
    )

    assert all("a model without activation checkpointing" in one for one in errors)


def test_a_second_backward_is_refused(pool: Any) -> None:
    errors = pool(2).run("sagemaker_offload_jobs:second_backward", {}, fails=True)

    assert all("asked for a second time" in one for one in errors)
