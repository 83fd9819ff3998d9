# SPDX-License-Identifier: Apache-2.0
"""Metrics of a job as other programs read them: each format by a reader of its own."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WATCH_A_JOB = Path(__file__).parents[2] / "docs" / "how-to" / "watch_a_job.md"
JOB = 'a "quoted" \\ job'


@smp.step
def train(model: Any, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).mean()
    model.backward(loss)
    return loss


@smp.step
def evaluate(model: Any, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


@pytest.fixture
def run_job(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Trains on batches of each of the numbers, then evaluates on those of ``evaluated``."""

    def run(values: Sequence[float], evaluated: Sequence[float] = (), **variables: str) -> None:
        for name, value in {"SMP_PROGRESS": "off", "SAGEMAKER_JOB_NAME": JOB, **variables}.items():
            monkeypatch.setenv(name, value)
        smp.init({"microbatches": 2})
        try:
            smp.state.reports.set_interval(0)
            model = smp.DistributedModel(torch.nn.Linear(3, 1, bias=False))
            with torch.no_grad():
                model.get_module().weight.fill_(1 / 3)
            for value in values:
                train(model, torch.full((8, 3), value))
            with torch.no_grad():
                for value in evaluated:
                    evaluate(model, torch.full((8, 3), value))
        finally:
            smp.shutdown()

    return run


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_the_events(tmp_path: Path, run_job: Callable[..., None]) -> None:
    run_job([2.5, math.nan], [2.0], SMP_TENSORBOARD=str(tmp_path / "events"))

    found = scalars(tmp_path / "events")
    (first, loss), (second, lost) = found["train/loss"]
    assert (first, loss, second) == (1, 2.5, 2)
    assert math.isnan(lost), "a loss that is lost is to be seen"
    assert found["evaluation/loss"] == [(2, 2.0)]
    assert "train/flops_utilization" not in found, "nobody knows this processor's peak"
    assert all(bytes_ > 2**20 for _, bytes_ in found["train/peak_memory_bytes"])
    times = [event.wall_time for event in EventAccumulator(str(tmp_path / "events"))
             .Reload().Scalars("train/loss")]  # fmt: skip
    assert all(abs(time.time() - one) < 600 for one in times)


@pytest.mark.parametrize("loss", [2.5, math.nan, math.inf, -math.inf])
def test_prometheus_reads_the_last_step(
    tmp_path: Path, run_job: Callable[..., None], loss: float
) -> None:
    file = tmp_path / "metrics.txt"

    run_job([9.0, loss], [7.0], SMP_OPENMETRICS=str(file))

    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    assert [sample.value for sample in families["smp_steps"].samples] == [2]
    assert families["smp_steps"].type == "counter"
    [sample] = families["smp_loss"].samples
    assert sample.labels == {"job_name": JOB}
    assert sample.value == loss or math.isnan(sample.value) == math.isnan(loss)
    assert families["smp_data_wait_ratio"].unit == "ratio"
    assert families["smp_step_seconds"].samples[0].value > 0
    held = {s.labels["kind"]: s.value for s in families["smp_memory_bytes"].samples}
    assert held["parameters"] == 12
    assert list(tmp_path.iterdir()) == [file], "no draft stays"


def test_cloudwatch_finds_each_metric_in_its_line(
    capfd: pytest.CaptureFixture[str], run_job: Callable[..., None]
) -> None:
    run_job([2.5], [math.inf], SMP_EMBEDDED_METRICS="Training")

    train_line, evaluation = map(json.loads, capfd.readouterr().out.splitlines())
    for line in (train_line, evaluation):
        about = line["_aws"]
        assert abs(about["Timestamp"] - 1000 * time.time()) < 600_000
        [directive] = about["CloudWatchMetrics"]
        assert directive["Namespace"] == "Training"
        assert directive["Dimensions"] == [["JobName"]]
        assert line["JobName"] == JOB
        names = [metric["Name"] for metric in directive["Metrics"]]
        assert all(math.isfinite(line[name]) for name in names)
        assert {metric["Unit"] for metric in directive["Metrics"]} <= {
            "None", "Seconds", "Bytes", "Count/Second",
        }  # fmt: skip
    assert train_line["loss"] == 2.5
    assert "evaluation_loss" not in evaluation, "CloudWatch takes finite numbers alone"
    assert evaluation["evaluation_seconds"] > 0


def test_a_job_writes_what_its_environment_asks_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], run_job: Callable[..., None]
) -> None:
    run_job(
        [1.0, 2.0, 3.0],
        SMP_TENSORBOARD=str(tmp_path / "events"),
        SMP_EMBEDDED_METRICS="Training",
        SMP_OPENMETRICS=str(tmp_path / "metrics.txt"),
        SAGEMAKER_JOB_NAME="one",
    )

    assert [step for step, _ in scalars(tmp_path / "events")["train/loss"]] == [1, 2, 3]
    assert 'smp_steps_total{job_name="one"} 3' in (tmp_path / "metrics.txt").read_text()
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]


def test_losses_that_are_no_numbers_are_texts_in_json(
    tmp_path: Path, run_job: Callable[..., None]
) -> None:
    run_job([1.0, math.nan, -math.inf], SMP_METRICS=str(tmp_path / "metrics"))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    lines = (tmp_path / "metrics").read_text().splitlines()
    losses = [json.loads(line, parse_constant=refuse)["loss"] for line in lines]
    assert losses == [1.0, "NaN", "-Infinity"]


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
