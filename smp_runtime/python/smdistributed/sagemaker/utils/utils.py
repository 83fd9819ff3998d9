# SPDX-License-Identifier: Apache-2.0
"""A clock for blocks of a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from smdistributed.sagemaker.logger import get_logger


@contextmanager
def timeit(condition: bool, message: str, rank: int = 0) -> Iterator[None]:
    """Logs on the first rank how long the block inside took, where ``condition`` holds.

    >>> with timeit(False, "nothing"):
    ...     pass
    """
    begin = time.perf_counter()
    yield
    if condition and rank == 0:
        get_logger().info("%s: %.3f s", message, time.perf_counter() - begin)
