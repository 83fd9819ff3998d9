# SPDX-License-Identifier: Apache-2.0
"""When optimizers step, for the record and for what counts as waiting for data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from smdistributed import _runtime


class OptimizerTimes:
    """Of this process, whose optimizers torch's hooks see.

    Args:
        recorder: of this rank; None: nothing is recorded.
        meter: the first rank's.
    """

    def __init__(
        self, recorder: _runtime.Recorder | None, meter: _runtime.StepMeter | None
    ) -> None:
        self._recorder, self._meter = recorder, meter
        self._hooks = (
            register_optimizer_step_pre_hook(self.begins),
            register_optimizer_step_post_hook(self.ended),
        )

    def begins(self, *_: Any) -> None:
        if self._recorder is not None:
            self._recorder.begin_optimizer()

    def ended(self, *_: Any) -> None:
        if self._recorder is not None:
            self._recorder.end_optimizer()
        if self._meter is not None:
            self._meter.optimizer_stepped()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


@contextmanager
def measured_optimizer(times: OptimizerTimes | None) -> Iterator[None]:
    """Around all that an optimizer does, the exchanges about it among it."""
    if times is None:
        yield
        return
    times.begins()
    try:
        yield
    finally:
        times.ended()
