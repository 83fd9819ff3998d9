# SPDX-License-Identifier: Apache-2.0
"""Checks that replicas train on samples of their own.

Where all are fed the same batches, each computes the same gradients, and the job learns as one of
them would alone: nothing else shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checks.input_check import Input, input_tensors
from smdistributed.modelparallel.torch._session import log, ranks

_STEPS = 20  # within which the other replicas have made their first one


class ReplicaBatches:
    """Compares the first training batch of all replicas, and warns on rank 0. Nobody waits for
    another rank: each writes a digest to the store, and rank 0 looks whether they are there.

    Args:
        prescaled: whether the ranks of a tensor-parallel group share a batch.
    """

    def __init__(self, session: _runtime.Session, prescaled: bool) -> None:
        self._store, self._prescaled = session.store, prescaled
        self._steps = 0
        self._own: Input = []

    @property
    def done(self) -> bool:
        """No further batch is of interest."""
        return self._steps >= (_STEPS if ranks.rank() == 0 else 1)

    def before_step(self, arguments: Mapping[str, Any]) -> None:
        """A training step begins with these arguments, on a first rank of a pipeline."""
        self._steps += 1
        if self._steps == 1:
            self._own = input_tensors(arguments, with_digests=True)
            self._store.set(_key(ranks.rank()), str(self._own))
        elif self._own and ranks.rank() == 0:
            self._compare()

    def _compare(self) -> None:
        group = ranks.get_rdp_group() if self._prescaled else ranks.get_dp_group()
        others = [rank for rank in group if rank != 0]
        if not self._store.check([_key(rank) for rank in others]):
            return
        self._steps = _STEPS
        own = str(self._own)
        alike = [rank for rank in others if self._store.get(_key(rank)).decode() == own]
        if alike:
            kind = "rdp" if self._prescaled else "dp"
            log.warning(
                f"the first batch of rank{'s' * (len(alike) > 1)} {', '.join(map(str, alike))} is "
                "that of rank 0: replicas that train on the same samples learn what one learns. "
                "Give each its own, as by torch.utils.data.DistributedSampler(dataset, "
                f"num_replicas=smp.{kind}_size(), rank=smp.{kind}_rank())"
            )


def _key(rank: int) -> str:
    return f"first_batch/{rank}"
