# SPDX-License-Identifier: Apache-2.0
"""How the steps of a job go: a line for people, a JSON object a step for machines."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from smdistributed.modelparallel.torch._report.memory_ledger import peak_memory_bytes
from smdistributed.modelparallel.torch._report.metric_outputs import MetricOutput, write_to
from smdistributed.modelparallel.torch._report.model_flops import ModelFlops
from smdistributed.modelparallel.torch._report.progress_line import (
    COLUMNS,
    evaluation_line,
    progress_line,
)
from smdistributed.modelparallel.torch._report.reported_loss import ReplicaLoss
from smdistributed.modelparallel.torch._session import log
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_LINE_INTERVAL = 1.0  # [s] between two lines where they stay, and two reports to most outputs


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
    if state.meter is not None:
        state.meter.total = total


@dataclass
class _Evaluation:
    """Steps without training that follow each other."""

    steps: int = 0
    samples: int = 0
    loss: torch.Tensor | None = None
    """Sum over the samples, where the loss is: looking at each would wait for the GPU."""
    is_shown: bool = False

    def add(self, loss: torch.Tensor | None, samples: int) -> None:
        self.steps += 1
        self.is_shown = False
        if loss is None:
            return
        weight = max(samples, 1)
        weighted = loss * weight
        self.loss = weighted if self.loss is None else self.loss + weighted.to(self.loss.device)
        self.samples += weight

    def mean_loss(self) -> float | None:
        return None if self.loss is None else float(self.loss) / self.samples


class StepMeter:
    """Times the steps of the first rank.

    Args:
        replicas: how many batches the job takes at a time; each counts as large as this rank's.
        pipeline: whether the model has several partitions.
        outputs: what else gets reports of the steps.
        progress: whether stderr gets a line: on a terminal one that is rewritten each step, else
            one a second at most.
        ledger: what the model's state takes here, as ``smp.memory_summary`` says.
        flops: what the model computes, where that is counted.
        replica_loss: the mean over replicas, where there are several.

    A step lasts from the end of the step before it, the first one from its own begin; what of that
    time is spent neither in a step nor in an optimizer counts as waiting for data.
    """

    def __init__(
        self,
        *,
        replicas: int,
        pipeline: bool,
        outputs: Sequence[MetricOutput],
        progress: bool,
        ledger: Callable[[], Mapping[str, int]],
        flops: ModelFlops | None = None,
        replica_loss: ReplicaLoss | None = None,
    ) -> None:
        self.total: int | None = None
        """How many training steps there will be, if the script has said so."""
        self._replicas, self._pipeline, self._ledger = replicas, pipeline, ledger
        self._replica_loss = replica_loss
        self.flops = flops
        """Learns what a forward takes from who runs the first one."""
        self._outputs = list(outputs)
        self._progress = progress
        self._steps = 0
        self._loss_is_lost = False  # NaN or infinite, and said so
        self._evaluation: _Evaluation | None = None
        self._ended: float | None = None  # None: what is before the first step is start-up
        self._begun = self._busy_until = self._first_step_ended = 0.0
        self._last_line = self._last_output = float("-inf")
        self._line_is_open = False  # on a terminal
        self._hook = register_optimizer_step_post_hook(self._optimizer_stepped)

    def close(self) -> None:
        """Forgets the job; ends the line on a terminal."""
        self._hook.remove()
        self._end_evaluation()
        self._end_line()
        for output in self._outputs:
            output.close()

    def step_begins(self) -> None:
        self._begun = time.perf_counter()
        if self._ended is None:
            self._ended = self._busy_until = self._begun
        if self._replica_loss is not None:
            self._replica_loss.forget()

    def step_ended(
        self,
        use: Mapping[str, float],
        batch_size: int,
        loss: torch.Tensor | None,
        *,
        training: bool,
    ) -> None:
        """``use`` is the engine's account of the step, ``loss`` this rank's."""
        now = time.perf_counter()
        assert self._ended is not None
        seconds = now - self._ended
        if training:
            self._end_evaluation()
            self._steps += 1
            if self._steps == 1:
                self._first_step_ended = now
        else:
            self._evaluation = self._evaluation or _Evaluation()
            self._evaluation.add(loss, batch_size)
        samples = batch_size * self._replicas
        report: dict[str, Any] = {
            "step": self._steps,
            "evaluation": not training,
            "time": time.time(),
            "seconds": seconds,
            "global_batch_size": samples,
            "samples_per_second": samples / seconds,
            # A GPU is not done yet; the first step's is not known at its end.
            "pipeline_use": use.get("group_use"),
            "data_wait_share": max(0.0, self._begun - self._busy_until) / seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "messages_sent": int(use["messages_sent"]),
            "bytes_sent": int(use["bytes_sent"]),
        }
        if self.flops is not None:
            report |= self.flops.of_step(seconds, training=training)
        self._ended = self._busy_until = now
        shows = self._progress and self._line_is_due(now)
        due = now - self._last_output >= _LINE_INTERVAL
        wanted = [output for output in self._outputs if due or output.each_step]
        if wanted or (shows and training):
            report["loss"], report["loss_ranks"] = self._loss(loss)  # on a GPU this waits for it
            if state.records is not None:
                state.records.note(
                    "loss", [self._steps, report["loss"], training, report["time"], samples]
                )
            report["memory_bytes"] = dict(self._ledger())
        if shows and training:
            self._show_step(report)
        elif shows:
            self._show_evaluation()
        if due:
            self._last_output = now
        for output in write_to(wanted, report):
            self._outputs.remove(output)

    def _optimizer_stepped(self, *_: Any) -> None:
        self._busy_until = time.perf_counter()

    def _loss(self, own: torch.Tensor | None) -> tuple[float | None, int]:
        """The loss, and over how many ranks it is the mean."""
        mean = None if self._replica_loss is None else self._replica_loss.mean()
        if mean is None:
            mean = (None, 0) if own is None else (float(own), 1)
        loss = mean[0]
        if loss is not None and not math.isfinite(loss) and not self._loss_is_lost:
            self._loss_is_lost = True
            log.warning(
                f"the loss is {loss} in step {self._steps}: what is trained now cannot be used. "
                "Look at that batch, lower the learning rate or clip gradients; "
                "torch.autograd.set_detect_anomaly(True) names the operation"
            )
        return mean

    # --- The line ---

    def _line_is_due(self, now: float) -> bool:
        return sys.stderr.isatty() or now - self._last_line >= _LINE_INTERVAL

    def _show_step(self, report: Mapping[str, Any]) -> None:
        self._show(
            progress_line(
                report,
                total=self.total,
                seconds_left=self._seconds_left(),
                pipeline=self._pipeline,
                replicas=self._replicas,
                columns=_columns(),
            )
        )

    def _seconds_left(self) -> float | None:
        """As the steps after the first one went, with all that was between them."""
        done = self._steps - 1
        if self.total is None or not 0 < done < self.total - 1 or self._ended is None:
            return None
        return (self._ended - self._first_step_ended) / done * (self.total - self._steps)

    def _show_evaluation(self) -> None:
        current = self._evaluation
        assert current is not None
        current.is_shown = True
        loss = current.mean_loss()
        self._show(evaluation_line(self._steps, current.steps, loss, self._replicas, _columns()))

    def _end_evaluation(self) -> None:
        """Says what came of it; the line stays on a terminal, too."""
        if self._evaluation is not None and self._progress:
            if not self._evaluation.is_shown:
                self._show_evaluation()
            self._end_line()
        self._evaluation = None

    def _show(self, text: str) -> None:
        self._last_line = self._ended if self._ended is not None else self._last_line
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
            self._line_is_open = True
        else:
            log.info(text)

    def _end_line(self) -> None:
        if self._line_is_open:
            print(file=sys.stderr)
            self._line_is_open = False


def _columns() -> int:
    """Of a line that a terminal can rewrite: one that does not wrap."""
    if not sys.stderr.isatty():
        return COLUMNS
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        width = 0
    return min(COLUMNS, width - 1) if width > 1 else COLUMNS
