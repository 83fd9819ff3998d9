# SPDX-License-Identifier: Apache-2.0
"""Activations that leave the GPU and come back, on streams of their own."""

import pytest
import torch
from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPStepError

ELEMENTS = 4 << 20
BYTES = 4 * ELEMENTS
#: Clock cycles for which the GPU is kept busy: tens of milliseconds on any of them.
BUSY = 50_000_000


def numbered(gpu: torch.device, number: int) -> torch.Tensor:
    return torch.full((ELEMENTS,), float(number), device=gpu)


def test_what_is_put_comes_back_behind_busy_streams(gpu: torch.device) -> None:
    store = _runtime.ActivationStore(horizon=3)
    for round_number in range(3):  # the second uses the first one's pinned memory
        handles = []
        for number in range(6):
            torch.cuda._sleep(BUSY // 10)  # the tensor is made long after put() has returned
            handles.append(store.put(numbered(gpu, 10 * round_number + number), number % 2))
        for number in reversed(range(6)):
            assert bool((handles[number].take() == 10 * round_number + number).all())

    assert store.stats().slow_bytes == store.stats().fast_bytes == 0
    assert store.stats().arena_bytes == 6 * BYTES


def test_a_stream_that_takes_waits_and_the_host_does_not(gpu: torch.device) -> None:
    store = _runtime.ActivationStore(horizon=1)
    taker = torch.cuda.Stream()
    torch.cuda._sleep(BUSY)
    handle = store.put(numbered(gpu, 5), 0)

    with torch.cuda.stream(taker):
        tensor = handle.take()
        sums = tensor.sum(dtype=torch.float64)

    assert not torch.cuda.current_stream().query(), "put or take waited for the device"
    assert store.stats().waits == 1
    taker.synchronize()
    assert sums.item() == 5.0 * ELEMENTS


def test_memory_of_the_gpu_is_free_while_tensors_are_away(gpu: torch.device) -> None:
    store = _runtime.ActivationStore(horizon=1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    handles = [store.put(numbered(gpu, number), 0) for number in range(8)]
    torch.cuda.synchronize()
    torch.empty(1 << 21, device=gpu)  # the allocator looks at its events when it is asked

    assert torch.cuda.memory_allocated() < before + 2 * BYTES
    assert store.stats().slow_bytes == 8 * BYTES
    assert bool((handles[7].take() == 7).all())


def test_a_host_that_is_ahead_has_no_more_on_the_gpu_than_it_may(gpu: torch.device) -> None:
    store = _runtime.ActivationStore(horizon=1, most_fast=2)
    for number in range(8):  # pinned memory, which takes long to make
        store.put(numbered(gpu, number), 0)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()

    for round_number in range(3):
        handles = []
        for number in range(8):
            torch.cuda._sleep(BUSY // 10)
            handles.append(store.put(numbered(gpu, number), round_number))
        for number in reversed(range(8)):
            torch.cuda._sleep(BUSY // 10)
            assert handles[number].take().shape == (ELEMENTS,)

    # The two, and one that is made while they are there.
    assert torch.cuda.max_memory_allocated() <= before + 3 * BYTES
    assert store.stats().highest_fast == 2


def test_what_is_changed_while_it_leaves_is_refused(gpu: torch.device) -> None:
    store = _runtime.ActivationStore(horizon=1)
    tensor = numbered(gpu, 1)
    handle = store.put(tensor, 0)
    tensor.add_(1)

    with pytest.raises(SMPStepError, match="changed in place"):
        handle.take()


def test_copies_go_beside_computing(gpu: torch.device) -> None:
    """Copies of the same size in the computing stream would add their time to it."""
    store = _runtime.ActivationStore(horizon=1)
    store.put(numbered(gpu, 0), 0)  # pinned memory takes long to make
    source = [numbered(gpu, number) for number in range(8)]
    for tensor in source:
        store.put(tensor, 0)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    handles = [store.put(tensor, 0) for tensor in source]
    begin.record()
    torch.cuda._sleep(1000)
    end.record()
    torch.cuda.synchronize()

    copying = torch.empty(BYTES // 4, pin_memory=True)
    alone, over = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    alone.record()
    copying.copy_(source[0], non_blocking=True)
    over.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) < 4 * alone.elapsed_time(over), "eight copies stood before it"
    assert len(handles) == 8
