# SPDX-License-Identifier: Apache-2.0
"""Where the first rank's metrics go: files and streams that other programs read.

Each is asked for by a variable of the environment, and gets reports as `StepMeter` makes them.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session import log


class MetricOutput(Protocol):
    """What reads the reports. ``write`` may raise OSError, and is not called again then."""

    variable: str
    """That asks for it."""
    each_step: bool
    """Whether it gets each step, or one a second at most: on a GPU a loss has to be waited for."""

    def write(self, report: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Metric:
    key: str
    """In a report."""
    name: str
    """In OpenMetrics, where a unit ends it."""
    unit: str
    """In CloudWatch."""
    meaning: str


_METRICS = (
    _Metric("loss", "smp_loss", "None", "Loss of the last training step"),
    _Metric("seconds", "smp_step_seconds", "Seconds", "Time of the last step"),
    _Metric("samples_per_second", "smp_samples_per_second", "Count/Second", "Of all replicas"),
    _Metric("pipeline_use", "smp_pipeline_use_ratio", "None", "Share of the step spent computing"),
    _Metric("data_wait_share", "smp_data_wait_ratio", "None", "Share outside of steps"),
    _Metric("flops_per_second", "smp_flops_per_second", "Count/Second", "Of the model, a rank"),
    _Metric("flops_utilization", "smp_flops_utilization_ratio", "None", "Share of the peak"),
    _Metric("peak_memory_bytes", "smp_peak_memory_bytes", "Bytes", "Of the first rank"),
)


def _finite(report: Mapping[str, Any]) -> dict[str, float]:
    """What of the metrics there is; formats for machines know no infinite numbers."""
    values = {metric.key: report.get(metric.key) for metric in _METRICS}
    return {key: float(v) for key, v in values.items() if v is not None and math.isfinite(v)}


class JsonLines:
    """A JSON object a step (docs/reference/file_formats.md), appended to a file."""

    variable, each_step = "SMP_METRICS", True

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, report: Mapping[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(report) + "\n")

    def close(self) -> None:
        """Each line was written at once."""


class TensorBoardEvents:
    """Event files, by torch's writer, which is loaded with the first report.

    Raises, when written to:
        OSError: the package tensorboard is not installed.
    """

    variable, each_step = "SMP_TENSORBOARD", False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, report: Mapping[str, Any]) -> None:
        if self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - slow to load
            except ImportError as error:
                raise OSError(f"the package tensorboard cannot be loaded ({error})") from error
            self._writer = SummaryWriter(str(self._folder))
        kind = "evaluation" if report["evaluation"] else "train"
        for key, value in {**_finite(report), "loss": report["loss"]}.items():
            if value is not None:  # a loss that is no number is to be seen
                self._writer.add_scalar(f"{kind}/{key}", value, report["step"], report["time"])
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class OpenMetricsFile:
    """The last step in OpenMetrics' text format, for Prometheus: whole at every moment.

    Args:
        job: the value of the label ``job_name``.
    """

    variable, each_step = "SMP_OPENMETRICS", False

    def __init__(self, file: Path, job: str) -> None:
        self._file, self._job = file, job

    def write(self, report: Mapping[str, Any]) -> None:
        if report["evaluation"]:
            return
        label = f'job_name="{_escaped(self._job)}"'
        lines = []
        for metric in _METRICS:
            value = report.get(metric.key)
            if value is not None:
                lines += _family(metric.name, "gauge", metric.meaning, {label: value})
        held = {f'{label},kind="{kind}"': n for kind, n in report["memory_bytes"].items()}
        lines += _family("smp_memory_bytes", "gauge", "The model's state, of the first rank", held)
        lines += _family(
            "smp_steps", "counter", "Training steps", {label: report["step"]}, suffix="_total"
        )
        text = "\n".join([*lines, "# EOF", ""])
        draft = self._file.with_name(f"{self._file.name}.{os.getpid()}.part")
        draft.write_text(text)
        draft.replace(self._file)

    def close(self) -> None:
        """The last step stays."""


def _family(
    name: str, kind: str, meaning: str, values: Mapping[str, float], suffix: str = ""
) -> list[str]:
    """Lines of one name; a unit is part of the name and has to be named once more."""
    unit = [f"# UNIT {name} {unit}" for unit in ("bytes", "seconds", "ratio") if _ends(name, unit)]
    samples = [f"{name}{suffix}{{{labels}}} {_number(v)}" for labels, v in values.items()]
    return [f"# TYPE {name} {kind}", *unit, f"# HELP {name} {meaning}", *samples]


def _ends(name: str, unit: str) -> bool:
    """
    >>> _ends("smp_memory_bytes", "bytes"), _ends("smp_loss", "bytes")
    (True, False)
    """
    return name.endswith("_" + unit)


def _number(value: float) -> str:
    """
    >>> _number(2), _number(0.25), _number(math.nan), _number(-math.inf)
    ('2', '0.25', 'NaN', '-Inf')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class EmbeddedMetrics:
    """Lines of stdout from which CloudWatch makes metrics (its embedded metric format): one JSON
    object a line, which `train` therefore shows without the rank's tag.

    Args:
        namespace: of the metrics.
        job: the value of the dimension ``JobName``.
    """

    variable, each_step = "SMP_EMBEDDED_METRICS", False

    def __init__(self, namespace: str, job: str) -> None:
        self._namespace, self._job = namespace, job

    def write(self, report: Mapping[str, Any]) -> None:
        kind = "evaluation_" if report["evaluation"] else ""
        values = {kind + key: value for key, value in _finite(report).items()}
        metrics = [
            {"Name": kind + m.key, "Unit": m.unit} for m in _METRICS if kind + m.key in values
        ]
        about = {
            "Timestamp": int(1000 * report["time"]),
            "CloudWatchMetrics": [
                {"Namespace": self._namespace, "Dimensions": [["JobName"]], "Metrics": metrics}
            ],
        }
        line = json.dumps({"_aws": about, "JobName": self._job, "step": report["step"], **values})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Each line was written at once."""


def metric_outputs(options: _runtime.RuntimeOptions) -> list[MetricOutput]:
    """Those that the environment asks for."""
    job = options.job_name
    outputs: list[MetricOutput] = []
    if options.metrics_file:
        outputs.append(JsonLines(Path(options.metrics_file)))
    if options.tensorboard_folder:
        outputs.append(TensorBoardEvents(Path(options.tensorboard_folder)))
    if options.openmetrics_file:
        outputs.append(OpenMetricsFile(Path(options.openmetrics_file), job))
    if options.embedded_metrics:
        outputs.append(EmbeddedMetrics(options.embedded_metrics, job))
    return outputs


def write_to(outputs: Iterable[MetricOutput], report: Mapping[str, Any]) -> list[MetricOutput]:
    """Those that could not be written to: each with a warning, for no job ends for its metrics."""
    failed = []
    for output in outputs:
        try:
            output.write(report)
        except OSError as error:
            log.warning(f"{output.variable}: no more metrics: {error}")
            failed.append(output)
    return failed
