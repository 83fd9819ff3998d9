# SPDX-License-Identifier: Apache-2.0
"""What other programs read of a job's metrics: each format by a reader of its own."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from smdistributed.modelparallel.torch._report import step_meter
from smdistributed.modelparallel.torch._report.metric_outputs import (
    EmbeddedMetrics,
    OpenMetricsFile,
    TensorBoardEvents,
    write_to,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WATCH_A_JOB = Path(__file__).parents[2] / "docs" / "how-to" / "watch_a_job.md"
JOB = 'a "quoted" \\ job'


def report(**changes: Any) -> dict[str, Any]:
    return {
        "step": 3, "evaluation": False, "time": 1.75e9, "seconds": 0.5, "global_batch_size": 8,
        "samples_per_second": 16.0, "pipeline_use": 0.75, "data_wait_share": 0.125,
        "peak_memory_bytes": 2**30, "messages_sent": 4, "bytes_sent": 1000, "loss": 2.5,
        "loss_ranks": 1, "memory_bytes": {"parameters": 400, "gradients": 0},
    } | changes  # fmt: skip


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    output = TensorBoardEvents(tmp_path / "events")
    assert not (tmp_path / "events").exists(), "nothing before the first report"

    output.write(report())
    output.write(report(step=4, loss=1.5, pipeline_use=None))
    output.write(report(step=4, evaluation=True, loss=2.0))
    output.close()

    found = scalars(tmp_path / "events")
    assert found["train/loss"] == [(3, 2.5), (4, 1.5)]
    assert found["train/pipeline_use"] == [(3, 0.75)], "what is not known is left out"
    assert found["evaluation/loss"] == [(4, 2.0)]
    assert found["train/peak_memory_bytes"] == [(3, 2**30), (4, 2**30)]


def test_a_loss_that_is_lost_is_seen_in_tensorboard(tmp_path: Path) -> None:
    output = TensorBoardEvents(tmp_path)
    output.write(report(loss=math.nan))
    output.close()

    [(step, loss)] = scalars(tmp_path)["train/loss"]
    assert step == 3
    assert math.isnan(loss)


def test_without_tensorboard_one_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    output = TensorBoardEvents(tmp_path)

    assert write_to([output], report()) == [output]
    said = capfd.readouterr().err
    assert "SMP_TENSORBOARD: no more metrics: the package tensorboard cannot be loaded" in said


@pytest.mark.parametrize("loss", [2.5, math.nan, math.inf, -math.inf])
def test_prometheus_reads_the_last_step(tmp_path: Path, loss: float) -> None:
    file = tmp_path / "metrics.txt"
    output = OpenMetricsFile(file, JOB)

    output.write(report(step=2, loss=9.0))
    output.write(report(loss=loss))
    output.write(report(evaluation=True, loss=7.0))

    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    assert [sample.value for sample in families["smp_steps"].samples] == [3]
    assert families["smp_steps"].type == "counter"
    [sample] = families["smp_loss"].samples
    assert sample.labels == {"job_name": JOB}
    assert sample.value == loss or math.isnan(sample.value) == math.isnan(loss)
    assert families["smp_pipeline_use_ratio"].unit == "ratio"
    assert families["smp_step_seconds"].samples[0].value == 0.5
    held = {s.labels["kind"]: s.value for s in families["smp_memory_bytes"].samples}
    assert held == {"parameters": 400, "gradients": 0}
    assert list(tmp_path.iterdir()) == [file], "no draft stays"


def test_cloudwatch_finds_each_metric_in_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    output = EmbeddedMetrics("Training", JOB)

    output.write(report())
    output.write(report(evaluation=True, loss=math.inf))

    train, evaluation = map(json.loads, capfd.readouterr().out.splitlines())
    for line in (train, evaluation):
        about = line["_aws"]
        assert about["Timestamp"] == 1_750_000_000_000
        [directive] = about["CloudWatchMetrics"]
        assert directive["Namespace"] == "Training"
        assert directive["Dimensions"] == [["JobName"]]
        assert line["JobName"] == JOB
        names = [metric["Name"] for metric in directive["Metrics"]]
        assert all(math.isfinite(line[name]) for name in names)
        assert {metric["Unit"] for metric in directive["Metrics"]} <= {
            "None", "Seconds", "Bytes", "Count/Second",
        }  # fmt: skip
    assert train["loss"] == 2.5
    assert "evaluation_loss" not in evaluation, "CloudWatch takes finite numbers alone"
    assert evaluation["evaluation_seconds"] == 0.5


@smp.step
def train(model: Any, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).mean()
    model.backward(loss)
    return loss


@smp.step
def evaluate(model: Any, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


def test_a_job_writes_what_its_environment_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SMP_TENSORBOARD", str(tmp_path / "events"))
    monkeypatch.setenv("SMP_OPENMETRICS", str(tmp_path / "metrics.txt"))
    monkeypatch.setenv("SMP_EMBEDDED_METRICS", "Training")
    monkeypatch.setenv("SAGEMAKER_JOB_NAME", "one")
    monkeypatch.setenv("SMP_PROGRESS", "off")
    monkeypatch.setattr(step_meter, "_LINE_INTERVAL", 0.0)
    smp.init({"microbatches": 2})
    try:
        model = smp.DistributedModel(torch.nn.Linear(3, 1))
        for _ in range(3):
            train(model, torch.ones(8, 3))
    finally:
        smp.shutdown()

    assert [step for step, _ in scalars(tmp_path / "events")["train/loss"]] == [1, 2, 3]
    assert 'smp_steps_total{job_name="one"} 3' in (tmp_path / "metrics.txt").read_text()
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]


def test_the_published_definitions_find_the_metrics_in_the_log() -> None:
    """CloudWatch searches each line for the expression; its group is the value."""
    found = re.search(r"```json metric_definitions\n(.*?)```", WATCH_A_JOB.read_text(), re.DOTALL)
    assert found
    definitions = json.loads(found[1])

    prefix = "[1,mpirank:0,algo-1]<stderr>:2026-11-25 17:00:00,123 smp INFO     "
    train_line = "step 12 of 400: loss 0.4231 (first replica), 8.1e-05 samples/s, 7 min left, "
    train_line += "pipeline 71 %, waiting for data 3 %, peak 1.1 GiB"
    evaluation = "evaluation after step 12: loss 0.5123, mean of 3 steps"
    values = {
        definition["Name"]: [
            match[1]
            for line in (train_line, evaluation)
            if (match := re.search(definition["Regex"], prefix + line))
        ]
        for definition in definitions
    }
    assert values == {
        "train:loss": ["0.4231"],
        "train:samples_per_second": ["8.1e-05"],
        "train:pipeline_use_percent": ["71"],
        "train:data_wait_percent": ["3"],
        "evaluation:loss": ["0.5123"],
    }


@pytest.mark.parametrize("checkpointed", [False, True])
def test_operations_are_those_of_the_models_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointed: bool
) -> None:
    file = tmp_path / "metrics"
    monkeypatch.setenv("SMP_METRICS", str(file))
    smp.init({"microbatches": 2})
    try:
        model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(3, 5)))
        if checkpointed:
            smp.set_activation_checkpointing(model.get_module())
        train(model, torch.ones(8, 3))
        with torch.no_grad():
            evaluate(model, torch.ones(8, 3))
    finally:
        smp.shutdown()

    trained, evaluated = map(json.loads, file.read_text().splitlines())
    forward = 2 * 8 * 3 * 5
    assert (trained["flops"], evaluated["flops"]) == (3 * forward, forward)
    assert trained["flops_per_second"] == pytest.approx(trained["flops"] / trained["seconds"])
    assert trained["flops_utilization"] is None, "nobody knows this processor's peak"
