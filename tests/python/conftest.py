# SPDX-License-Identifier: Apache-2.0
"""One process that has joined a job of its own."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import smdistributed.modelparallel.torch as library


@pytest.fixture
def smp(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The library, initialised; ended again after the test."""
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    library.init({"microbatches": 2})
    yield library
    library.shutdown()
