# SPDX-License-Identifier: Apache-2.0
"""Gradients of parameters that may come late, and layers of which somebody expects something else:
hooks, gradients within the step, double backwards, forwards that are not what the class says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jobs.odd_layers import COUNTED, KINDS, MICROBATCHES, STEPS, look_alone, train_alone

SETTINGS = {
    "partitions": 2,
    "microbatches": MICROBATCHES,  # two, whose sum has no order
    "pipeline": "zero_bubble",
    "auto_partition": False,
    "default_partition": 0,
}


@pytest.fixture(scope="module")
def trained(pool) -> tuple[list[dict[str, Any]], str]:
    """What ranks found, and the log of their job."""
    before = len(pool(2).log_text(last=None))
    found = pool(2).run("odd_layer_jobs:train", SETTINGS)
    return found, pool(2).log_text(last=None)[before:]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_have_the_bits_of_one_process(trained, kind):
    for rank in trained[0]:
        assert not isinstance(rank[kind], str), rank[kind]
    for step, (losses, gradients) in enumerate(train_alone(kind)):
        together: dict[str, torch.Tensor | None] = {}
        for rank in trained[0]:
            own_losses, own_gradients = rank[kind][0][step]
            assert own_losses == losses
            together |= own_gradients
        assert together.keys() == gradients.keys()
        for name, expected in gradients.items():
            own = together[name]
            same = own is expected if own is None or expected is None else own.equal(expected)
            assert same, (name, own, expected)


@pytest.mark.parametrize("kind", COUNTED)
def test_who_is_told_of_gradients_is_told_once_a_microbatch(trained, kind):
    assert [rank[kind][1] for rank in trained[0]] == [MICROBATCHES * STEPS] * 2


@pytest.mark.parametrize(
    "why",
    [
        "a hook on a parameter is to see its gradients",
        "a hook is to see the gradients of a layer",
        "what is computed of a parameter alone has saved tensors",
    ],
)
def test_each_rank_says_once_what_comes_at_once(trained, why):
    said = [line for line in trained[1].splitlines() if why in line]

    for rank in range(2):
        (own,) = (line for line in said if f"[rank {rank}]" in line)
        assert "pipeline zero_bubble: gradients of parameters of " in own
        assert "not while the rank waits" in own


def test_a_step_that_looks_at_gradients_finds_them_whole(pool):
    one_by_one = {**SETTINGS, "active_microbatches": 1}

    found = pool(2).run("odd_layer_jobs:look", one_by_one, "UsedTwice")

    for ours, expected in zip(found[0], look_alone("UsedTwice"), strict=True):
        assert len(ours) == len(expected) == 4
        assert all(map(torch.equal, ours, expected))
    assert "the step looks at gradients, of which all are to be there" in pool(2).log_text()
