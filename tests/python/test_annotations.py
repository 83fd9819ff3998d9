# SPDX-License-Identifier: Apache-2.0
"""smp.partition and smp.set_partition."""

import copy
from types import ModuleType

import pytest
import smdistributed.modelparallel.torch as library
from smdistributed.modelparallel.torch._annotations.partition_annotations import partition_of
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPNotInitializedError, SMPPartitionError
from torch import nn


@pytest.fixture
def four_partitions(smp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(ranks, "pp_size", lambda: 4)
    return smp


def test_modules_created_inside_are_marked_and_the_innermost_wins(
    four_partitions: ModuleType,
) -> None:
    smp = four_partitions
    with smp.partition(1):
        outer = nn.Sequential(nn.Linear(1, 1))
        with smp.partition(3):
            inner = nn.Linear(1, 1)
        after = nn.ReLU()
    outside = nn.Linear(1, 1)

    assert [partition_of(m) for m in (outer, outer[0], inner, after, outside)] == [1, 1, 3, 1, None]


def test_torch_is_left_as_it_was(four_partitions: ModuleType) -> None:
    before = nn.Module.__init__

    with pytest.raises(ZeroDivisionError), four_partitions.partition(1):
        _ = 1 / 0

    assert nn.Module.__init__ is before
    assert partition_of(nn.Linear(1, 1)) is None


def test_a_mark_set_later_replaces_the_one_of_creation(four_partitions: ModuleType) -> None:
    with four_partitions.partition(1):
        layer = nn.Linear(1, 1)

    four_partitions.set_partition(layer, 2)

    assert partition_of(layer) == 2
    assert partition_of(copy.deepcopy(layer)) == 2


def test_marks_are_no_part_of_the_state(four_partitions: ModuleType) -> None:
    layer = nn.Linear(1, 1)
    four_partitions.set_partition(layer, 2)

    assert set(layer.state_dict()) == {"weight", "bias"}


@pytest.mark.parametrize("index", [-1, 4, 1.0, True, "1"])
def test_partitions_that_do_not_exist_are_refused(
    four_partitions: ModuleType, index: object
) -> None:
    with pytest.raises(SMPPartitionError, match="expected 0 to 3"):
        four_partitions.set_partition(nn.Linear(1, 1), index)
    with (
        pytest.raises(SMPPartitionError, match="expected 0 to 3"),
        four_partitions.partition(index),
    ):
        pass


def test_before_init_they_are_refused() -> None:
    with pytest.raises(SMPNotInitializedError):
        library.set_partition(nn.Linear(1, 1), 0)
