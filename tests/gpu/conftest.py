# SPDX-License-Identifier: Apache-2.0
"""A device for each test: the CPU always, a GPU where one is.

Where a GPU is, every test of it runs: one that is skipped all the same is a failure.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from smdistributed import _runtime

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "gpu" / "lab"), str(ROOT / "ci")]  # as in ci/gpu
# For the jobs, which import each other's models by their place in the repository.
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]).strip(":")


def gpus_of_the_machine() -> int:
    """As the driver shows them, whatever torch makes of it; 0 where they are hidden on purpose."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return 0
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def why_no_gpu() -> str:
    """Reason for which this process cannot use a GPU; empty if it can."""
    if not torch.cuda.is_available():
        return "no CUDA device here: torch.cuda.is_available() is false"
    if not _runtime.HAS_CUDA:
        return "this build has no GPU code: no nvcc was found when it was configured"
    return ""


def require_gpu() -> torch.device:
    """Skips the test, saying what is missing."""
    if reason := why_no_gpu():
        pytest.skip(reason)
    return torch.device("cuda", torch.cuda.current_device())


def fail_if_torch_misses_the_gpu() -> None:
    """For tests that take the CPU where no GPU is: they would pass and show nothing."""
    if gpus_of_the_machine() > 0 and (reason := why_no_gpu()):
        pytest.fail(f"this machine has a GPU, and {reason}")


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    return require_gpu() if request.param == "cuda" else torch.device("cpu")


@pytest.fixture
def gpu() -> torch.device:
    device = require_gpu()
    warm_up(device)
    return device


@functools.cache
def warm_up(device: torch.device) -> None:
    """Uses once what tests use behind a busy GPU. CUDA loads a kernel when it is first started, and
    may wait for the whole device to do so: what is to be shown to run early would run late, and a
    missing order between streams would not show."""
    torch.cuda._sleep(1)
    for kind in (torch.float32, torch.int64):
        numbers = torch.full((1 << 22,), 3, dtype=kind, device=device)
        (numbers + torch.zeros_like(numbers)).add_(3).clone()
        numbers.sum(dtype=torch.float64).item()
        bool((numbers == 3).all())
    pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    pinned.copy_(numbers, non_blocking=True)
    numbers.copy_(pinned, non_blocking=True)
    torch.arange(24.0, device=device).view(4, 6).t().contiguous()
    torch.cuda.synchronize()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip says what it lacked; where that is a GPU that is there, it hides a fault."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and gpus_of_the_machine() > 0:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped, and this machine has a GPU: {report.longrepr}; "
            "CUDA_VISIBLE_DEVICES= hides it on purpose"
        )
    return report
