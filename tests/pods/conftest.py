# SPDX-License-Identifier: Apache-2.0
"""The data of the jobs, and what they lose on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.digits_job import copy_data, losses_on_one_machine
from tests.pods.pods import lacks


@pytest.fixture(scope="session", autouse=True)
def needs_pods() -> None:
    reason = lacks()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_data(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> list[float]:
    return losses_on_one_machine(tmp_path_factory.mktemp("one_machine"), digits)
