# SPDX-License-Identifier: Apache-2.0
"""The order of batches: whole, without repetition, and after a resume as if there had been none."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from types import ModuleType

import pytest
from smdistributed.modelparallel.torch._checkpoint import batch_order
from torch.utils.data import DataLoader

SAMPLES = 26


def copies(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setattr(batch_order.ranks, "dp_rank", lambda: rank)
    monkeypatch.setattr(batch_order.ranks, "dp_size", lambda: size)


def joined(batches: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def epoch(order: batch_order.ResumableBatchSampler) -> list[list[int]]:
    """All that is left of one, used."""
    batches = []
    for batch in order:
        batches.append(batch)
        order.used()
    return batches


def test_an_epoch_has_every_sample_once_and_the_next_another_order(smp: ModuleType) -> None:
    order = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2)

    first, second = epoch(order), epoch(order)

    for batches in (first, second):
        assert sorted(joined(batches)) == list(range(SAMPLES))
    assert first != second
    assert len(order) == SAMPLES // 2


@pytest.mark.parametrize("used", [0, 1, 12, 13, 20])
def test_a_resumed_job_sees_what_an_unbroken_one_would(smp: ModuleType, used: int) -> None:
    unbroken = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2, seed=3)
    expected = epoch(unbroken) + epoch(unbroken) + epoch(unbroken)
    broken = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2, seed=3)
    seen: list[list[int]] = []
    while len(seen) < used:
        for batch in broken:
            if len(seen) == used:
                break
            seen.append(batch)
            broken.used()

    resumed = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2, seed=3)
    resumed.load_state_dict(broken.state_dict())
    while len(seen) < len(expected):
        seen += epoch(resumed)

    assert seen == expected


def test_what_workers_have_read_ahead_is_not_lost(smp: ModuleType) -> None:
    order = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2)
    loader = DataLoader(list(range(SAMPLES)), batch_sampler=order, num_workers=2)
    batches = iter(loader)
    seen = []
    for _ in range(3):
        seen.append(next(batches).tolist())
        order.used()

    resumed = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2)
    resumed.load_state_dict(order.state_dict())
    seen += epoch(resumed)

    assert sorted(joined(seen)) == list(range(SAMPLES))


def test_copies_share_a_step_and_their_number_does_not_change_it(
    smp: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(size: int) -> list[list[int]]:
        by_copy = []
        for rank in range(size):
            copies(monkeypatch, rank, size)
            by_copy.append(epoch(smp.ResumableBatchSampler(range(SAMPLES), batch_size=8 // size)))
        return [joined(together) for together in zip(*by_copy, strict=True)]

    assert steps(1) == steps(2) == steps(4)
    assert len(steps(2)) == SAMPLES // 8


def test_a_pass_whose_batches_were_not_used_is_refused(smp: ModuleType) -> None:
    order = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2)
    list(order)

    with pytest.raises(smp.exceptions.SMPValidationError, match=r"13 of them were not used; call"):
        list(order)


def test_what_does_not_fit_is_refused(smp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = smp.exceptions.SMPValidationError
    with pytest.raises(refusal, match="batch_size 0"):
        smp.ResumableBatchSampler(range(SAMPLES), batch_size=0)
    order = smp.ResumableBatchSampler(range(SAMPLES), batch_size=2)
    with pytest.raises(refusal, match="has 26 samples; give the data"):
        order.load_state_dict({"epoch": 0, "samples": 28})
    copies(monkeypatch, 0, 4)
    with pytest.raises(refusal, match="a batch of 4 copies has 28"):
        smp.ResumableBatchSampler(range(SAMPLES), batch_size=7)
