# SPDX-License-Identifier: Apache-2.0
"""What the first rank says of its steps."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._report import step_meter
from smdistributed.modelparallel.torch._report.metric_outputs import JsonLines
from smdistributed.modelparallel.torch._report.progress_line import progress_line
from smdistributed.modelparallel.torch._report.reported_loss import loss_of
from smdistributed.modelparallel.torch._report.step_meter import StepMeter
from smdistributed.modelparallel.torch.exceptions import (
    SMPNotInitializedError,
    SMPValidationError,
)


@smp.step
def scaled_mean(model, batch):
    loss = model(batch).mean()
    model.backward(loss)
    return {"logits": batch, "loss": loss}


def run_steps(count: int) -> None:
    model = smp.DistributedModel(torch.nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        model.get_module().weight.fill_(2)
    for _ in range(count):
        scaled_mean(model, torch.ones(8, 3))


def test_one_object_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    monkeypatch.setenv("SMP_METRICS", str(file))
    smp.init({"microbatches": 2})
    try:
        run_steps(3)
    finally:
        smp.shutdown()

    steps = [json.loads(line) for line in file.read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert {step["loss"] for step in steps} == {6.0}
    assert {step["global_batch_size"] for step in steps} == {8}
    assert {step["memory_bytes"]["parameters"] for step in steps} == {3 * 4}
    assert {step["memory_bytes"]["gradients"] for step in steps} == {3 * 4}


def test_a_file_that_cannot_be_written_stops_no_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SMP_METRICS", str(tmp_path / "missing" / "metrics"))
    monkeypatch.setenv("SMP_TRACE", str(tmp_path / "trace"))
    smp.init({"microbatches": 2})
    (tmp_path / "trace").rmdir()
    try:
        run_steps(2)
    finally:
        smp.shutdown()

    said = capfd.readouterr().err
    assert said.count("SMP_METRICS: no more metrics:") == 1
    assert said.count("the timeline cannot be written and ends here") == 1
    assert "step 1: loss 6, " in said


# --- The account of a step, by a clock that the test sets ---


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now

    time = perf_counter


@contextmanager
def a_meter(
    monkeypatch: pytest.MonkeyPatch,
    file: Path | None = None,
    replicas: int = 1,
    pipeline: bool = False,
) -> Iterator[tuple[StepMeter, Callable[..., None]]]:
    """And what makes a step, of ``seconds`` that begin after ``wait`` seconds."""
    clock = Clock()
    monkeypatch.setattr(step_meter, "time", clock)
    meter = StepMeter(
        replicas=replicas,
        pipeline=pipeline,
        outputs=[JsonLines(file)] if file else [],
        progress=True,
        ledger=dict,
    )

    def step(
        wait: float = 0,
        seconds: float = 1,
        loss: float | None = 1,
        training: bool = True,
        use: float | None = 1.0,
    ) -> None:
        clock.now += wait
        meter.step_begins()
        clock.now += seconds
        account: dict[str, float] = {"messages_sent": 0, "bytes_sent": 0}
        if use is not None:
            account["group_use"] = use
        own = None if loss is None else torch.tensor(loss, dtype=torch.float64)
        meter.step_ended(account, 8, own, training=training)

    try:
        yield meter, step
    finally:
        meter.close()


def test_the_use_of_a_pipeline_is_told_once_it_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A GPU has not done the step when the host ends it."""
    file = tmp_path / "metrics"

    with a_meter(monkeypatch, file, pipeline=True) as (_, step):
        step(use=None)
        step(use=0.75)

    assert [line["pipeline_use"] for line in metrics(file)] == [None, 0.75]
    assert capfd.readouterr().err.count("pipeline 75 %") == 1


def metrics(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The messages on stderr, without time, name and level."""
    return [re.sub(r"^.*? INFO +", "", line) for line in capfd.readouterr().err.splitlines()]


def test_start_up_is_no_waiting_for_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    with a_meter(monkeypatch, file) as (_, step):
        step(wait=500, seconds=2)
        step(wait=3, seconds=1)

    first, second = metrics(file)
    assert (first["seconds"], first["data_wait_share"], first["samples_per_second"]) == (2, 0, 4)
    assert (second["seconds"], second["data_wait_share"], second["samples_per_second"]) == (
        4, 0.75, 2,
    )  # fmt: skip


def test_line_says_of_how_many_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with a_meter(monkeypatch) as (meter, step):
        meter.total = 4
        step(seconds=100)  # start-up of a first step tells nothing of the others
        step(wait=10, seconds=30)
        step(wait=0, seconds=20)
        step(seconds=30)
        step(seconds=10)

    lines = said(capfd)
    assert [line.split(", waiting")[0] for line in lines] == [
        "step 1 of 4: loss 1, 0.08 samples/s",
        "step 2 of 4: loss 1, 0.2 samples/s, 80 s left",
        "step 3 of 4: loss 1, 0.4 samples/s, 30 s left",
        "step 4 of 4: loss 1, 0.27 samples/s",
        "step 5: loss 1, 0.8 samples/s",
    ]


def test_evaluation_has_its_own_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "metrics"
    with a_meter(monkeypatch, file, replicas=2) as (_, step):
        step(seconds=2)
        step(seconds=0.25, loss=3, training=False)  # within a second of the line before
        step(seconds=0.25, loss=4, training=False)
        step(seconds=2, loss=None)
        step(seconds=2, loss=5, training=False)
        step(seconds=0.5, loss=7, training=False)

    lines = [line.split(", ")[:2] for line in said(capfd)]
    assert lines == [
        ["step 1: loss 1 (first replica)", "8 samples/s"],
        ["evaluation after step 1: loss 3.5", "mean of 2 steps of the first replica"],
        ["step 2: 8 samples/s", "waiting for data 0 %"],
        ["evaluation after step 2: loss 5", "mean of 1 step of the first replica"],
        ["evaluation after step 2: loss 6", "mean of 2 steps of the first replica"],
    ]
    told = [(one["step"], one["evaluation"], one["loss"]) for one in metrics(file)]
    assert told == [
        (1, False, 1), (1, True, 3), (1, True, 4), (2, False, None), (2, True, 5), (2, True, 7),
    ]  # fmt: skip


def test_a_short_job_does_not_lose_its_last_evaluation(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with a_meter(monkeypatch) as (_, step):
        step(training=False, loss=None)
        step(seconds=0.5, training=False, loss=None)

    assert said(capfd) == [
        "evaluation before step 1: 1 step, which returned no loss",
        "evaluation before step 1: 2 steps, which returned no loss",
    ]


# --- The text ---


@pytest.mark.parametrize("columns", [40, 79, 120])
@pytest.mark.parametrize("total", [None, 12_345_678])
def test_line_fits(columns: int, total: int | None) -> None:
    report = {
        "step": 12_345_678, "loss": -1.23456e-30, "loss_ranks": 1, "samples_per_second": 1e7,
        "pipeline_use": 1.0, "data_wait_share": 1.0, "peak_memory_bytes": 2**60,
        "memory_bytes": dict.fromkeys(("parameters", "gradients", "peak_live"), 2 ** 40),
    }  # fmt: skip

    line = progress_line(report, total=total, seconds_left=8e6, replicas=2, columns=columns)

    assert len(line) <= columns
    assert line.startswith("step 12345678")


def test_smallest_amounts_of_memory_are_left_out_first() -> None:
    report = {
        "step": 1, "loss": 2.0, "loss_ranks": 1, "samples_per_second": 50.0, "pipeline_use": 0.5,
        "data_wait_share": 0.0, "peak_memory_bytes": 3 * 2**30,
        "memory_bytes": {"live": 2**10, "parameters": 2**30, "optimizer": 2**31, "offloaded": 0},
    }  # fmt: skip

    shown = [progress_line(report, columns=columns) for columns in (133, 132, 121, 79)]

    step = "step 1: loss 2, 50 samples/s, pipeline 50 %, waiting for data 0 %, peak 3.0 GiB"
    assert shown == [
        f"{step} (optimizer 2.0 GiB, parameters 1.0 GiB, live 1.0 KiB)",
        f"{step} (optimizer 2.0 GiB, parameters 1.0 GiB, …)",
        f"{step} (optimizer 2.0 GiB, …)",
        step,
    ]


@pytest.mark.parametrize(
    ("output", "loss"),
    [
        (torch.tensor(2.0), 2),
        ({"logits": torch.zeros(1), "loss": torch.tensor([4.0])}, 4),
        ((torch.zeros(2, 3), torch.tensor(5, dtype=torch.int64), torch.tensor(6.0)), 6),
        (({"count": 3}, 0.5), 0.5),
        (torch.zeros(2), None),
        ({"loss": None, "other": torch.tensor(1.0)}, None),
        (None, None),
    ],
)
def test_which_number_is_the_loss(output: Any, loss: float | None) -> None:
    found = loss_of([output, output])

    assert (None if found is None else found.item()) == loss


def test_a_loss_that_one_microbatch_lacks_is_none() -> None:
    assert loss_of([torch.tensor(1.0), None]) is None


# --- In a job ---


@smp.step
def evaluate(model, batch):
    return batch, model(batch).mean()


def test_lines_of_a_job(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(step_meter, "_LINE_INTERVAL", 0.0)
    smp.init({"microbatches": 2})
    smp.progress(1)
    try:
        run_steps(1)
        model = smp.state.model
        with torch.no_grad():
            evaluate(model, torch.ones(8, 3))
        model.eval()
        evaluate(model, torch.full((4, 3), 4.0))
    finally:
        smp.shutdown()

    lines = said(capfd)
    assert lines[0].startswith("step 1 of 1: loss 6, ")
    assert "pipeline" not in lines[0], "there is none"
    assert lines[1:] == [
        "evaluation after step 1: loss 6, mean of 1 step",
        "evaluation after step 1: loss 12, mean of 2 steps",
    ], "8 samples of loss 6 and 4 of loss 24"


def test_total_is_a_number_of_steps(smp: Any) -> None:
    for wrong in (0, -1, 2.5, "400", None, True):
        with pytest.raises(SMPValidationError, match=r"smp\.progress got"):
            smp.progress(wrong)


def test_total_is_told_after_init() -> None:
    with pytest.raises(SMPNotInitializedError, match=r"smp\.progress was used before"):
        smp.progress(3)
