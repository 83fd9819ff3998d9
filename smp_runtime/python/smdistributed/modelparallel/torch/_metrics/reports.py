# SPDX-License-Identifier: Apache-2.0
"""Reports of this rank's steps, and of the memory and operations that they take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from smdistributed.modelparallel.torch._objects.containers import is_sequence
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state


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


def progress(total: int) -> None:
    """Tells the live line how many training steps this run of the script makes: it shows
    ``step 12 of 400`` and the time left. Not in the published library. No communication; any rank
    may call it, at any time after ``smp.init``, and again if the number changes.

    Args:
        total: calls of functions decorated with ``smp.step``, without those that only evaluate.
            Where gradients accumulate each call counts; a job that resumes counts from there on.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPValidationError: ``total`` is no whole number above 0.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> smp.progress(400)
    >>> smp.shutdown()
    """
    state.require_initialized("smp.progress")
    if isinstance(total, bool) or not isinstance(total, int) or total < 1:
        raise SMPValidationError(
            f"smp.progress got {total!r}; expected how many steps the script makes, at least 1"
        )
    state.reports.set_total(total)


def loss_of(outputs: Sequence[Any]) -> torch.Tensor | None:
    """Mean over the microbatches of what each returned as ``loss``, or of its first number with a
    fraction: a scalar of 64 bits, where the loss is. None where a microbatch has none.

    >>> loss_of([(torch.zeros(2, 3), torch.tensor(1.0)), (torch.zeros(2, 3), torch.tensor(3.0))])
    tensor(2., dtype=torch.float64)
    >>> loss_of([{"count": 3, "loss": 0.5}])
    tensor(0.5000, dtype=torch.float64)
    >>> loss_of([torch.zeros(2, 3)]) is None
    True
    """
    numbers: list[torch.Tensor] = []
    for output in outputs:
        number = _first_number(output)
        if number is None:
            return None
        numbers.append(number)
    with torch.no_grad():
        if len({(number.shape, number.dtype, number.device) for number in numbers}) > 1:
            place = numbers[0].device
            numbers = [number.reshape(()).to(place, torch.float64) for number in numbers]
        return torch.stack(numbers).mean(dtype=torch.float64)


def _first_number(output: Any) -> torch.Tensor | None:
    if isinstance(output, torch.Tensor):
        plain = output.numel() == 1 and output.is_floating_point() and not output.is_sparse
        return output if plain else None
    if isinstance(output, float):
        return torch.tensor(output)
    items: Sequence[Any] = ()
    if isinstance(output, Mapping):
        items = [output["loss"]] if "loss" in output else list(output.values())
    elif is_sequence(output):
        items = output
    return next((n for n in map(_first_number, items) if n is not None), None)
