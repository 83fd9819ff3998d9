# SPDX-License-Identifier: Apache-2.0
"""Optimizer states of sliced layers, put together for another number of tensor ranks."""

from __future__ import annotations

import pytest
import torch
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import (
    NAMES_KEY,
    Slices,
    joined_optimizer,
    slices_from_json,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

AXES = {"split": 0}
SHAPES = {"split": [2], "whole": [3]}


def _part(rank, steps=(5, 5), lr=0.1):
    return {
        "state": {
            0: {"moment": torch.arange(2) + 2 * rank, "step": steps[0]},
            1: {"moment": torch.ones(3), "step": steps[1]},
        },
        "param_groups": [{"lr": lr, "params": [0, 1]}],
        NAMES_KEY: ["split", "whole"],
    }


def _joined(parts, names=("split", "whole"), groups=((0, 1),), rename=dict):
    return joined_optimizer(
        parts, AXES, SHAPES, rename, names, groups, lambda _, value: value, "ckpt"
    )


def test_moments_are_joined_and_counts_of_steps_are_kept():
    joined = _joined([_part(0), _part(1)])

    assert joined["state"][0]["moment"].tolist() == [0, 1, 2, 3]
    assert joined["state"][1]["moment"].tolist() == [1, 1, 1]
    assert [joined["state"][number]["step"] for number in (0, 1)] == [5, 5]
    assert joined["param_groups"] == [{"lr": 0.1, "params": [0, 1]}]


def test_parameters_may_have_become_others():
    joined = _joined(
        [_part(0), _part(1)],
        names=("one",),
        groups=((0,),),
        rename=lambda values: {"one": torch.cat([values["split"], values["whole"]])},
    )

    assert joined["state"][0]["moment"].tolist() == [0, 1, 2, 3, 1, 1, 1]
    assert joined["state"][0]["step"] == 5


def test_counts_that_differ_are_not_guessed_for_a_parameter_of_another_name():
    with pytest.raises(SMPCheckpointError, match=r"step differs between parameters.* of one"):
        _joined(
            [_part(0, steps=(5, 6))],
            names=("one",),
            groups=((0,),),
            rename=lambda values: {"one": values["split"]},
        )


def test_other_groups_of_parameters_are_an_error():
    with pytest.raises(SMPCheckpointError, match="has 1 groups of parameters, here are 2"):
        _joined([_part(0), _part(1)], groups=((0,), (1,)))


@pytest.mark.parametrize("text", [
    "", "[]", '{"axes": {"a": "0"}}', '{"axes": 3}', '{"format": 2, "axes": {}}',
    '{"format": 2, "axes": {}, "replaced": {"a": 1}}',
])  # fmt: skip
def test_a_damaged_file_of_slices_is_an_error_with_its_name(text):
    with pytest.raises(SMPCheckpointError, match=r"slices\.json does not say"):
        slices_from_json(text, "slices.json")


def test_a_file_of_slices_of_the_first_format_does_not_say_what_was_replaced():
    assert slices_from_json('{"axes": {"a": 0}}', "slices.json") == Slices({"a": 0}, None)


def test_a_file_of_slices_of_a_later_format_is_an_error_with_its_number():
    with pytest.raises(SMPCheckpointError, match=r"slices\.json has format 3; .* formats 1 and 2"):
        slices_from_json('{"format": 3, "axes": {}, "replaced": {}}', "slices.json")
