# SPDX-License-Identifier: Apache-2.0
"""Ranks wait for each other over the job's store, with a deadline, and name who did not come."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.backend.exceptions import SMPConnectionError
from smdistributed.modelparallel.torch._session.stores import Store
from smdistributed.modelparallel.torch.exceptions import SMPCommTimeoutError, SMPMismatchError

#: Ranks whose collective failed learn of it, and say so, within this time of each other: those that
#: wait look for it so often.
_SIGNS, _LOOK = timedelta(seconds=3), timedelta(seconds=1)


class StoreBarriers:
    """One rank's view. Calls are numbered: the n-th call of one rank meets the n-th of another.

    No call waits longer than ``timeout``; ranks that wait for each other in different calls raise
    SMPMismatchError, within 10 s. ``watch`` sees that; without one nobody looks.
    """

    def __init__(
        self, store: Store, rank: int, timeout: timedelta, watch: _runtime.WaitWatch | None = None
    ) -> None:
        self._store = store
        self._rank = rank
        self.timeout = timeout
        self.watch = watch
        self._calls: Counter[str] = Counter()

    def _next(self, label: str) -> str:
        self._calls[label] += 1
        return f"{label}/{self._calls[label]}"

    @contextmanager
    def waiting(self, what: str, label: str, needs: Iterable[int]) -> Iterator[None]:
        """Around a call that does not end before all ranks in ``needs`` make it, too, under the
        same ``label`` and in the same order. Raises SMPMismatchError once ranks have been in calls
        that wait for each other, also where a script has caught that error."""
        if self.watch is None:
            yield
            return
        self.watch.begin(what, label, list(needs))
        try:
            yield
        finally:
            self.watch.end()

    def all(self, what: str, label: str, ranks: list[int], advice: str = "") -> None:
        """Returns when all ``ranks``, this one among them, have called it.

        Raises SMPCommTimeoutError that begins with ``what``, names the absent ranks and ends with
        ``advice``.
        """
        if len(ranks) == 1:
            return
        key = self._next(f"all/{label}/{ranks[0]}")
        store = self._store
        with self.waiting(what, f"all/{label}", ranks), self._connection():
            store.set(f"{key}/{self._rank}", "")
            if store.add(f"{key}/came", 1) == len(ranks):
                store.set(f"{key}/complete", "")
            if not self._appear([f"{key}/complete"], self.timeout):
                absent = [rank for rank in ranks if not store.check([f"{key}/{rank}"])]
                raise self._timed_out(what, absent, ranks, advice)
            if store.add(f"{key}/left", 1) == len(ranks):
                for name in [*map(str, ranks), "came", "complete", "left"]:
                    store.delete_key(f"{key}/{name}")

    def announce(self, label: str, receiver: int, note: str) -> str:
        """First half of a sender's call: leaves ``note`` for ``receiver``. Never waits."""
        key = self._next(f"pair/{label}/{self._rank}/{receiver}")
        with self._connection():
            self._store.set(f"{key}/sender", note)
        return key

    def await_receiver(self, what: str, key: str, receiver: int) -> None:
        """Second half: returns when the receiver has come for it."""
        with self._connection():
            self._await(what, f"{key}/receiver", receiver)

    def await_sender(self, what: str, label: str, sender: int) -> str:
        """A receiver's call: returns the note of the matching call of ``sender``."""
        key = self._next(f"pair/{label}/{sender}/{self._rank}")
        with self._connection():
            self._store.set(f"{key}/receiver", "")
            return self._await(what, f"{key}/sender", sender)

    def all_reduce(
        self,
        what: str,
        tensor: torch.Tensor,
        group: dist.ProcessGroup,
        operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    ) -> None:
        """``dist.all_reduce`` that begins its errors with ``what`` and names the absent ranks.

        The store hears of it only where it fails or takes half of ``timeout``. Where it takes too
        long, ranks leave signs that they came, and one that fails looks whose are missing; at half
        the time already, so that those that came late are not taken for absent. Where a rank is
        lost, those that are there leave signs for the whole group, for they may be at different
        calls: the last one of the lost rank may have ended well for some.

        Raises SMPCommTimeoutError, and SMPConnectionError where it failed before that time. On a
        GPU nobody waits here: NCCL's watchdog ends the process.
        """
        began = time.monotonic()
        place = f"reduce/{group.group_name}"
        call = self._next(place)
        work = dist.all_reduce(tensor, operation, group=group, async_op=True)
        assert work is not None  # this rank is a member
        if tensor.is_cuda:
            work.wait()  # on the stream alone; with a limit this thread would wait for the GPU
            return
        members = dist.get_process_group_ranks(group)
        try:
            with self.waiting(what, place, members):
                self._finish(work, place, call)
        except SMPMismatchError:
            raise
        except RuntimeError as error:
            in_time = time.monotonic() - began < self.timeout.total_seconds()
            with self._connection():
                self._store.set(f"{place}/failed", "")
            self._sign(call)
            self._sign(f"{place}/lost")
            absent = self._without_sign(f"{place}/lost" if in_time else call, members)
            if absent and not in_time:
                raise self._timed_out(what, absent, members) from error
            raise self.lost(what, absent or members, error) from error

    def lost(self, what: str, peers: list[int], error: RuntimeError) -> SMPConnectionError:
        """The error to raise where ``error`` ended an exchange with ``peers``."""
        others = sorted(set(peers) - {self._rank})
        return SMPConnectionError(
            f"{what}: rank {self._rank} lost the connection to "
            f"{'rank' if len(others) == 1 else 'one of ranks'} {', '.join(map(str, others))}: "
            f"{str(error).splitlines()[0]}"
        )

    def _finish(self, work: dist.Work, place: str, call: str) -> None:
        """Waits as long as the group does, unless another rank has seen the group fail."""
        signs_at = time.monotonic() + self.timeout.total_seconds() / 2
        while True:
            try:
                work.wait(min(_LOOK, self.timeout / 2))
                return
            except RuntimeError:
                if work.is_completed():
                    raise
            self._check()
            with self._connection():
                if self._store.check([f"{place}/failed"]):
                    raise RuntimeError("another rank has seen it fail")
            if time.monotonic() >= signs_at:
                self._sign(call)
                signs_at = math.inf

    def _sign(self, key: str) -> None:
        with self._connection():
            self._store.set(f"{key}/{self._rank}", "")

    def _without_sign(self, key: str, ranks: list[int]) -> list[int]:
        with self._connection():
            if self._appear([f"{key}/{rank}" for rank in ranks], _SIGNS):
                return []
            return [rank for rank in ranks if not self._store.check([f"{key}/{rank}"])]

    @contextmanager
    def _connection(self) -> Iterator[None]:
        try:
            yield
        except dist.DistError as error:
            raise SMPConnectionError(
                f"rank {self._rank} lost the job's store, which rank 0 or its launcher serves: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _await(self, what: str, key: str, peer: int) -> str:
        label = key.rpartition("/")[0]  # the same on both, without the call's number
        with self.waiting(what, label, [peer]):
            came = self._appear([key], self.timeout)
        if not came:
            raise self._timed_out(what, [peer], [peer, self._rank])
        note = self._store.get(key).decode()
        self._store.delete_key(key)
        return note

    def _appear(self, keys: list[str], limit: timedelta) -> bool:
        deadline = time.monotonic() + limit.total_seconds()
        while True:
            left = timedelta(seconds=max(deadline - time.monotonic(), 0.001))
            try:
                self._store.wait(keys, min(left, _LOOK))
            except dist.DistNetworkError:
                raise
            except (dist.DistStoreError, RuntimeError):
                came = self._store.check(keys)  # what a deadline looks like depends on the store
            else:
                came = True
            if came or time.monotonic() >= deadline:
                return came
            self._check()

    def _check(self) -> None:
        if self.watch is not None:
            self.watch.check()

    def _timed_out(
        self, what: str, absent: list[int], ranks: list[int], advice: str = ""
    ) -> SMPCommTimeoutError:
        seconds = self.timeout.total_seconds()
        return SMPCommTimeoutError(
            f"{what}: rank {self._rank} waited {seconds:g} s for "
            f"{'ranks' if len(absent) != 1 else 'rank'} {', '.join(map(str, absent))} of "
            f"{sorted(ranks)}; they ended, hang, or do not make the matching call "
            f"(SMP_TIMEOUT_SECONDS sets the time){advice and '; '}{advice}"
        )
