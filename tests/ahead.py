# SPDX-License-Identifier: Apache-2.0
"""Results that parametrized tests look at, made ahead of them and several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")


@contextmanager
def made_ahead(
    request: pytest.FixtureRequest, makers: Mapping[str, Callable[[], T]], at_once: int
) -> Iterator[dict[str, Future[T]]]:
    """Calls, in threads, the makers whose names are the ids of tests that are to run."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = {item.callspec.id for item in items if hasattr(item, "callspec")}
    threads = ThreadPoolExecutor(at_once)
    try:
        yield {name: threads.submit(make) for name, make in makers.items() if name in chosen}
    finally:
        threads.shutdown(cancel_futures=True)
