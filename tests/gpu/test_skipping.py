# SPDX-License-Identifier: Apache-2.0
"""The rule of conftest.py: where a GPU is, a test that is skipped has failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.gpu import conftest


def reported(outcome: str) -> pytest.TestReport:
    """Outcome that the hook makes of a report of that outcome."""
    report: Any = pytest.TestReport("test_it", ("file", 1, "test_it"), {}, outcome, "why", "setup")
    hook = conftest.pytest_runtest_makereport(SimpleNamespace(nodeid="test_it"), None)  # type: ignore[arg-type]
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    return ended.value.value


@pytest.mark.parametrize(
    ("gpus", "outcome", "expected"),
    [(0, "skipped", "skipped"), (1, "skipped", "failed"), (1, "passed", "passed")],
)
def test_a_skipped_test_has_failed_where_a_gpu_is(
    monkeypatch: pytest.MonkeyPatch, gpus: int, outcome: str, expected: str
) -> None:
    monkeypatch.setattr(conftest, "gpus_of_the_machine", lambda: gpus)

    report = reported(outcome)

    assert report.outcome == expected
    assert ("this machine has a GPU" in str(report.longrepr)) == (outcome != expected)


@pytest.mark.parametrize(("gpus", "reason"), [(0, "no CUDA device here"), (1, "")])
def test_the_cpu_may_be_taken_where_no_gpu_is_missed(
    monkeypatch: pytest.MonkeyPatch, gpus: int, reason: str
) -> None:
    monkeypatch.setattr(conftest, "gpus_of_the_machine", lambda: gpus)
    monkeypatch.setattr(conftest, "why_no_gpu", lambda: reason)

    conftest.fail_if_torch_misses_the_gpu()


def test_the_cpu_is_not_taken_for_a_gpu_that_torch_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "gpus_of_the_machine", lambda: 1)
    monkeypatch.setattr(conftest, "why_no_gpu", lambda: "no CUDA device here")

    with pytest.raises(pytest.fail.Exception, match="has a GPU, and no CUDA device here"):
        conftest.fail_if_torch_misses_the_gpu()


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_hidden_gpu_is_none(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)

    assert conftest.gpus_of_the_machine() == 0
