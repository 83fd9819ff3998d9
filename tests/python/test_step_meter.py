# SPDX-License-Identifier: Apache-2.0
"""What the first rank says of its steps."""

import json
from pathlib import Path

import pytest
import smdistributed.modelparallel.torch as smp
import torch


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
