# SPDX-License-Identifier: Apache-2.0
"""What only Python knows of a rank's steps, for the session's recorder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from smdistributed import _runtime
from smdistributed.modelparallel import __version__
from smdistributed.modelparallel.torch._report.memory_ledger import (
    peak_memory_bytes,
    state_by_formula,
)

_MEMORY_INTERVAL = 1.0  # [s] at first; it doubles with each so many lines
_LINES_BEFORE_DOUBLING = 1000


class StepRecords:
    """Of one rank, where it has a recorder. Steps of optimizers are seen by torch's hooks.

    Args:
        recorder: the session's.
        ledger: what the model's state takes here, as ``smp.memory_summary`` says.
    """

    def __init__(
        self, recorder: _runtime.Recorder, ledger: Callable[[], Mapping[str, int]]
    ) -> None:
        self._recorder, self._ledger = recorder, ledger
        self._hooks = (
            register_optimizer_step_pre_hook(self.optimizer_begins),
            register_optimizer_step_post_hook(self.optimizer_ended),
        )
        self._interval, self._lines, self._due = _MEMORY_INTERVAL, 0, 0.0

    def step_ended(self, samples: int, *, trained: bool) -> None:
        """``samples``: of this rank's batch."""
        self._recorder.describe_step(samples, trained)
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._interval
        self._lines += 1
        if self._lines % _LINES_BEFORE_DOUBLING == 0:
            self._interval *= 2
        reading = {"time": time.time(), "peak": peak_memory_bytes(), "kinds": self._ledger()}
        self.note("memory", reading | {"formula": state_by_formula()})

    def note(self, key: str, value: Any) -> None:
        """Adds a line to the record, if there is one."""
        if self._recorder.records:
            self._recorder.note(key, json.dumps(value))

    def event(self, kind: str, text: str = "") -> None:
        """Something that the report marks on its time axis, such as a checkpoint."""
        self.note("event", {"time": time.time(), "kind": kind, "text": text})

    def close(self) -> None:
        """Writes what is left."""
        for hook in self._hooks:
            hook.remove()
        self._recorder.close()

    def optimizer_begins(self, *_: Any) -> None:
        self._recorder.begin_optimizer()

    def optimizer_ended(self, *_: Any) -> None:
        self._recorder.end_optimizer()


@contextmanager
def measured_optimizer(records: StepRecords | None) -> Iterator[None]:
    """Around all that an optimizer does, the exchanges about it among it."""
    if records is None:
        yield
        return
    records.optimizer_begins()
    try:
        yield
    finally:
        records.optimizer_ended()


def job_facts(session: _runtime.Session, options: _runtime.RuntimeOptions) -> dict[str, Any]:
    """What the report's card says of the job, alike on all ranks."""
    kinds = ("PP", "TP", "RDP", "DP")
    return {
        "settings": json.loads(session.config.as_json()),
        "job_name": options.job_name,
        "image": options.image,
        "ranks": session.ranks.size,
        "groups": {kind: list(session.groups.ranks(kind)) for kind in kinds},
        "smp": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
