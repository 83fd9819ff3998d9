# SPDX-License-Identifier: Apache-2.0
"""A device for each test: the CPU always, a GPU where one is and this build can use it."""

import pytest
import torch
from smdistributed import _runtime


def require_gpu() -> torch.device:
    """Skips the test, saying what is missing."""
    if not _runtime.HAS_CUDA:
        pytest.skip("this build has no GPU code: no nvcc was found when it was configured")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here: torch.cuda.is_available() is false")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    return require_gpu() if request.param == "cuda" else torch.device("cpu")


@pytest.fixture
def gpu() -> torch.device:
    return require_gpu()
