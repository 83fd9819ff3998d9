# SPDX-License-Identifier: Apache-2.0
"""Reports of the first rank on its steps."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._metrics.reports import loss_of
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


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The messages on stderr, without time, name and level."""
    return [re.sub(r"^.*? INFO +", "", line) for line in capfd.readouterr().err.splitlines()]


def test_lines_of_a_job(capfd: pytest.CaptureFixture[str]) -> None:
    smp.init({"microbatches": 2})
    smp.state.reports.set_interval(0)
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
