# SPDX-License-Identifier: Apache-2.0
"""--thin N: of the cases of a parametrized test every N-th alone, the first among them."""

from __future__ import annotations

from collections import Counter

import pytest


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
