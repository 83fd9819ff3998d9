# SPDX-License-Identifier: Apache-2.0
"""--thin N: of the cases of a parametrized test every N-th alone, the first among them. An
interpreter that has imported torch already."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm.interpreter import warm_python


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thin", type=int, default=1, metavar="N", help="run every N-th case alone")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    step: int = config.getoption("--thin")
    cases: Counter[str] = Counter()
    left_out = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        if cases[name] % step:
            left_out.append(item)
        cases[name] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(left_out)
        items[:] = [item for item in items if item not in chosen]


@pytest.fixture(scope="session")
def warm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warm")


@pytest.fixture(scope="session")
def warm_interpreter(warm_folder: Path) -> Iterator[Path]:
    """For scripts that need a fresh process alone; WARM_PYTHON names it to what starts ranks."""
    with warm_python(warm_folder / "bin") as python:
        os.environ["WARM_PYTHON"] = str(python)
        yield python
        del os.environ["WARM_PYTHON"]
