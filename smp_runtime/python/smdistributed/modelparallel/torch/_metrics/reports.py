# SPDX-License-Identifier: Apache-2.0
"""Reports of this rank's steps, and of the memory and operations that they take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from smdistributed import _runtime
from smdistributed.modelparallel import __version__
from smdistributed.modelparallel.torch._metrics.memory_ledger import (
    memory_summary,
    state_by_formula,
)
from smdistributed.modelparallel.torch._metrics.model_flops import ForwardFlops, device_peak_flops


class Reports(_runtime.StepReports):
    """Reports of this process, whose optimizers torch's hooks see. Collective over the job."""

    def __init__(self, session: _runtime.Session) -> None:
        on_gpu = torch.cuda.is_available()
        device = torch.cuda.get_device_name() if on_gpu else "CPU"
        super().__init__(session, device, __version__, torch.__version__)
        self.set_memory(memory_summary, state_by_formula)
        is_asked = self.count_flops(on_gpu, device_peak_flops(device))
        # Some of a pipeline's forward runs on other ranks; a trace sees all of it.
        self._counts_forward = is_asked and len(session.groups.ranks("PP")) == 1
        self._hooks = (
            register_optimizer_step_pre_hook(lambda *_: self.begin_optimizer()),
            register_optimizer_step_post_hook(lambda *_: self.end_optimizer()),
        )

    @contextlib.contextmanager
    def optimizer_time(self) -> Iterator[None]:
        """Around all that an optimizer does, the exchanges about it among it."""
        self.begin_optimizer()
        try:
            yield
        finally:
            self.end_optimizer()

    def set_forward_flops(self, flops: int) -> None:
        self._counts_forward = False
        super().set_forward_flops(flops)

    @contextlib.contextmanager
    def counting_forward(self) -> Iterator[None]:
        """Around the run of one microbatch; without effect once its operations are known."""
        if not self._counts_forward:
            yield
            return
        with ForwardFlops() as counter:
            yield
        self.set_forward_flops(counter.flops)

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        super().close()
