# SPDX-License-Identifier: Apache-2.0
"""``smp.ResumableBatchSampler``: batches in an order that a resumed job goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized

import torch
from torch.utils.data import Sampler

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_NAME = "smp.ResumableBatchSampler"


class ResumableBatchSampler(Sampler[list[int]]):
    """Batches of a data set for this rank, the ``batch_sampler`` of a ``DataLoader``.

    All ranks of a model copy get the same batches, each copy its own. An epoch's order depends on
    ``seed`` and the epoch alone, so where the batch of all copies together stays as large, another
    number of copies trains on the same samples in each step.

    The loop tells what it has used, for the workers of a loader run ahead: ``used()`` after each
    batch that counts. Each pass over the loader is one epoch, the first after a resume the rest of
    one.

    Args:
        data: what has a length.
        batch_size: samples of a batch on this rank.
        shuffle: whether the order is drawn anew for each epoch.
        seed: of the order; the same on all ranks.

    The last samples of an epoch that fill no batch of all copies are left out.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPValidationError: a ``batch_size`` below 1, or data too short for one batch; a second
            pass over the loader after one whose batches were not all used.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> order = smp.ResumableBatchSampler(range(6), batch_size=2, shuffle=False)
    >>> for batch in order:
    ...     order.used()
    ...     if batch == [2, 3]:
    ...         break
    >>> order.state_dict()
    {'epoch': 0, 'samples': 4}
    >>> resumed = smp.ResumableBatchSampler(range(6), batch_size=2, shuffle=False)
    >>> resumed.load_state_dict(order.state_dict())
    >>> list(resumed)
    [[4, 5]]
    >>> smp.shutdown()
    """

    def __init__(self, data: Sized, batch_size: int, shuffle: bool = True, seed: int = 0) -> None:
        state.require_initialized(_NAME)
        if batch_size < 1:
            raise SMPValidationError(f"{_NAME} got batch_size {batch_size}; it is at least 1")
        self._length = len(data)
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0
        self._samples = 0
        """Used in this epoch by all copies together."""
        self._is_given_out = False
        if self._length < self._whole:
            raise SMPValidationError(
                f"{_NAME} got {self._length} samples, and a batch of {ranks.dp_size()} copies has "
                f"{self._whole}; give more data or a smaller batch_size"
            )

    @property
    def _whole(self) -> int:
        """Samples of one batch of all copies."""
        return self._batch_size * ranks.dp_size()

    def _left(self) -> int:
        return (self._length - self._samples) // self._whole

    def __len__(self) -> int:
        """Batches of this rank that are left in the epoch."""
        return self._left() or self._length // self._whole

    def __iter__(self) -> Iterator[list[int]]:
        if self._left() == 0:
            self._epoch, self._samples = self._epoch + 1, 0
        elif self._is_given_out:
            raise SMPValidationError(
                f"{_NAME} gave out all batches of epoch {self._epoch}, and {self._left()} of them "
                "were not used; call used() after each batch"
            )
        self._is_given_out = False
        order: Sequence[int] = range(self._length)
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed + self._epoch)
            order = torch.randperm(self._length, generator=generator).tolist()
        first = self._samples + ranks.dp_rank() * self._batch_size
        for start in range(first, self._samples + self._left() * self._whole, self._whole):
            yield list(order[start : start + self._batch_size])
        self._is_given_out = True

    def used(self) -> None:
        """Counts a batch, of this rank and so of all copies."""
        self._samples += self._whole

    def state_dict(self) -> dict[str, int]:
        """The place of the job, for ``user_content``."""
        return {"epoch": self._epoch, "samples": self._samples}

    def load_state_dict(self, saved: Mapping[str, int]) -> None:
        """Goes on there. Raises SMPValidationError for a place that this data does not have."""
        epoch, samples = saved["epoch"], saved["samples"]
        if epoch < 0 or not 0 <= samples <= self._length:
            raise SMPValidationError(
                f"{_NAME} got the place {dict(saved)}, and has {self._length} samples; give the "
                "data of the job that saved it"
            )
        self._epoch, self._samples = epoch, samples
        self._is_given_out = False
